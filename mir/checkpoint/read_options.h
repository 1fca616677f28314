#ifndef MIR_CHECKPOINT_READ_OPTIONS_H_
#define MIR_CHECKPOINT_READ_OPTIONS_H_

#include <c10/core/Device.h>

namespace mir::checkpoint {

struct ReadOptions {
  // False accepts wrong CRC-32s, as of files that were saved without.
  bool check_crc = true;
  // Keeps what is of an unknown class as an Object instead of refusing it.
  bool keep_unknown_classes = false;
  // Maps the file into memory instead of reading its tensors: their bytes come
  // from the disk when they are first used, so that opening a large file and
  // using one tensor costs that tensor. Their CRC-32s are not checked, all
  // else is. Changing such a tensor changes neither the file nor other reads
  // of it. Whoever shortens the file in place meanwhile (renaming another over
  // it, as our writers do, is fine) ends this process by SIGBUS.
  bool map = false;
  // Where tensors go, wherever they were saved. `meta` gives dtypes, shapes and
  // strides without data, and reads none. NumPy arrays stay on the CPU.
  c10::Device device = c10::kCPU;
};

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_READ_OPTIONS_H_
