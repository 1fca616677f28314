#ifndef MIR_DATA_LIST_SOURCE_H_
#define MIR_DATA_LIST_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/data/dataset_list.h"
#include "mir/data/grid.h"
#include "mir/data/prepare.h"
#include "mir/data/source.h"
#include "mir/data/tensor_cache.h"

namespace mir::data {

struct ListSourceOptions {
  PrepareOptions prepare;  // As the list was read with.
  uint64_t seed = 0;       // Draws the partners.
  // Prepared volumes that are kept in memory, at most.
  int64_t cache_bytes = int64_t{2} << 30;
};

// The pairs of a dataset list. In an epoch each training image is the fixed one
// once; its moving partner is another image, drawn as a function of seed, epoch
// and index. Listed pairs come as they are listed.
class ListSource : public PairSource {
 public:
  // What the list trains on; INVALID_ARGUMENT if it has no training part.
  static absl::StatusOr<std::unique_ptr<ListSource>> Training(
      const DatasetList& list, const ListSourceOptions& options);

  // Its validation pairs, the same in every epoch; INVALID_ARGUMENT if it has
  // none.
  static absl::StatusOr<std::unique_ptr<ListSource>> Validation(
      const DatasetList& list, const ListSourceOptions& options);

  int64_t size() const override;

  // The errors of ReadImage and ReadLabels, for what headers do not tell: a
  // wrong checksum, or voxels that are not finite.
  absl::StatusOr<Pair> Get(int64_t epoch, int64_t index) const override;

  // The files of a pair.
  ListedPair PairAt(int64_t epoch, int64_t index) const;

 private:
  explicit ListSource(const ListSourceOptions& options)
      : options_(options), cache_(options.cache_bytes) {}

  // The voxels of a file, on `grid`.
  absl::StatusOr<at::Tensor> Load(const std::string& path, const Grid& grid,
                                  bool labels) const;

  const ListSourceOptions options_;
  std::vector<ListedImage> images_;  // Drawn in pairs, or empty.
  std::vector<ListedPair> pairs_;
  mutable TensorCache cache_;
};

}  // namespace mir::data

#endif  // MIR_DATA_LIST_SOURCE_H_
