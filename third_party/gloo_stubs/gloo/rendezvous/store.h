#ifndef MIR_THIRD_PARTY_GLOO_STUBS_GLOO_RENDEZVOUS_STORE_H_
#define MIR_THIRD_PARTY_GLOO_STUBS_GLOO_RENDEZVOUS_STORE_H_

#include <chrono>
#include <string>
#include <vector>

namespace gloo::rendezvous {

// The base of c10d's GlooStore, which LibTorch alone makes.
class Store {
 public:
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};

}  // namespace gloo::rendezvous

#endif  // MIR_THIRD_PARTY_GLOO_STUBS_GLOO_RENDEZVOUS_STORE_H_
