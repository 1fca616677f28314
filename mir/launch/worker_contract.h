#ifndef MIR_LAUNCH_WORKER_CONTRACT_H_
#define MIR_LAUNCH_WORKER_CONTRACT_H_

#include <string>

namespace mir::launch {

// The text by which a program says that it keeps the contract of the README on
// top of torchrun's (--check-args, MIR_STORE_FD, --out, --device). It is part
// of every program that can say hello (status_line.h), so the runner knows a
// worker before it runs it.
extern const char kWorkerContract[];

// Whether the file `path` holds that text. False where it cannot be read.
bool KeepsWorkerContract(const std::string& path);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_WORKER_CONTRACT_H_
