from harness.api import ab as ab
from harness.api import compare as compare
from harness.api import kernel as kernel
from harness.api import load as load
from harness.api import load_kernels as load_kernels
from harness.api import plan as plan
from harness.api import predict as predict
from harness.api import run as run
from harness.api import verdict as verdict

__version__: str
