"""An example of a model that comes in a package of its own. Imports nothing: workers load it beside every framework."""
