// A CUDA driver for tests: as many devices as CUDA_VISIBLE_DEVICES lists, at
// most FAKE_CUDA_DEVICES; FAKE_CUDA_INIT is what cuInit returns, or "crash".

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags) {
  const char* const result = getenv("FAKE_CUDA_INIT");
  if (result != NULL && strcmp(result, "crash") == 0) abort();
  return (int)flags + (result == NULL ? 0 : atoi(result));
}

int cuDeviceGetCount(int* count) {
  const char* const all = getenv("FAKE_CUDA_DEVICES");
  *count = all == NULL ? 0 : atoi(all);
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible != NULL) {
    int listed = 1;
    for (; *visible != '\0'; ++visible) listed += *visible == ',';
    if (listed < *count) *count = listed;
  }
  return 0;
}

int cuDeviceGetName(char* name, int size, int device) {
  snprintf(name, (size_t)size, "Fake GPU %d", device);
  return 0;
}
