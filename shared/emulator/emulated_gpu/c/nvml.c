// NVML, the management library: PyTorch counts devices with it, and asks who uses their memory.
// https://docs.nvidia.com/deploy/nvml-api/
// PyTorch's wheels have no nvml.h; these are the prototypes of its documentation.
#include "emulator.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };
typedef int *handle; // to the number of a device
static int numbers[DEVICES];

static int device_of(int index, handle *of) {
  if (index < 0 || index >= card.devices)
    return INVALID_ARGUMENT;
  numbers[index] = index;
  *of = &numbers[index];
  return SUCCESS;
}

ENTRY int nvmlInit(void) { return SUCCESS; }
ENTRY int nvmlInit_v2(void) { return SUCCESS; }
ENTRY int nvmlShutdown(void) { return SUCCESS; }

ENTRY const char *nvmlErrorString(int result) {
  return result ? "not supported by the emulated GPU" : "success";
}

ENTRY int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = CUDART_VERSION;
  return SUCCESS;
}

ENTRY int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = card.devices;
  return SUCCESS;
}

ENTRY int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *of) { return device_of(index, of); }

ENTRY int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, handle *of) {
  const char *number = strchr(bus, ':'); // 0000:01:00.0 is device 0
  return number ? device_of((int)strtol(number + 1, NULL, 16) - 1, of) : INVALID_ARGUMENT;
}

ENTRY int nvmlDeviceGetName(handle of, char *name, unsigned size) {
  snprintf(name, size, "%s", card.name);
  return SUCCESS;
}

ENTRY int nvmlDeviceGetUUID(handle of, char *text, unsigned size) {
  snprintf(text, size, "GPU-656d756c-6174-6564-2d67-70752d3030%02x", 0x30 + *of);
  return SUCCESS;
}

typedef struct memory {
  unsigned long long total, free, used;
} memory;

ENTRY int nvmlDeviceGetMemoryInfo(handle of, memory *info) {
  size_t unused = memory_free(*of);
  *info = (memory){card.bytes, unused, card.bytes - unused};
  return SUCCESS;
}

typedef struct process {
  unsigned id;
  unsigned long long used;
} process;

// Only this process is known.
ENTRY int nvmlDeviceGetComputeRunningProcesses(handle of, unsigned *count, process *processes) {
  if (*count)
    processes[0] = (process){getpid(), memory_used(*of) + card.context};
  *count = 1;
  return SUCCESS;
}

ENTRY int nvmlDeviceGetNvLinkRemoteDeviceType(handle of, unsigned link, int *type) {
  return NOT_SUPPORTED;
}

ENTRY int nvmlDeviceGetNvLinkRemotePciInfo_v2(handle of, unsigned link, void *info) {
  return NOT_SUPPORTED;
}

typedef struct fabric {
  unsigned version;
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state; // 0: there is none
  unsigned health;
} fabric;

// NVLink between hosts, which GPUs before the H100 do not support.
ENTRY int nvmlDeviceGetGpuFabricInfoV(handle of, fabric *info) {
  if (card.capability < 90)
    return NOT_SUPPORTED;
  info->status = SUCCESS;
  info->state = 0;
  return SUCCESS;
}
