// A stand-in for NVML with three GPUs, of which the third is divided. FILE_NAME holds what the first has used.
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(size_t)(index + 1);
    return index < 3 ? 0 : 6;
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    *current = *pending = 1;
    return device == (void *)3 ? 0 : 3;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)2;
    return strcmp(uuid, "GPU-second") ? 6 : 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    FILE *file = fopen(FILE_NAME, "r");
    int found = file && fscanf(file, "%llu", millijoules) == 1;
    if (file) fclose(file);
    *millijoules *= (size_t)device;
    return found ? 0 : 3;
}
