#include "mir/losses/factory.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/nearest.h"
#include "mir/losses/compat/ncc.h"
#include "mir/losses/gradient_penalty.h"
#include "mir/losses/local_ncc.h"
#include "mir/losses/mse.h"

namespace mir::losses {
namespace {

template <typename Loss>
using Named = std::vector<std::pair<std::string, Loss>>;

const Named<Similarity>& Similarities() {
  static const auto& similarities = *new Named<Similarity>{
      {"ncc", LocalNcc()},
      {"mse", Mse()},
      {"mir.ncc_vxm", compat::NccVxm()},
      {"mir.ncc", compat::Ncc()},
      {"mir.ncc_mok", compat::NccMok()},
      {"mir.ncc_mok2", compat::NccMok()},
      {"mir.ncc_vfa", compat::NccVfa()},
      {"mir.ncc_fp16", compat::NccFp16()},
      {"mir.fast_ncc", compat::FastNcc()},
  };
  return similarities;
}

Regularizer PenaltyOf(GradientNorm norm) {
  GradientPenaltyOptions options;
  options.norm = norm;
  return GradientPenalty(options);
}

const Named<Regularizer>& Regularizers() {
  static const auto& regularizers = *new Named<Regularizer>{
      {"l1", PenaltyOf(GradientNorm::kL1)},
      {"l2", PenaltyOf(GradientNorm::kL2)},
  };
  return regularizers;
}

template <typename Loss>
std::vector<std::string> NamesOf(const Named<Loss>& losses) {
  std::vector<std::string> names;
  for (const auto& [name, loss] : losses) names.push_back(name);
  return names;
}

template <typename Loss>
absl::StatusOr<Loss> Find(const Named<Loss>& losses, absl::string_view kind,
                          absl::string_view wanted) {
  for (const auto& [name, loss] : losses) {
    if (name == wanted) return loss;
  }
  const std::vector<std::string> names = NamesOf(losses);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ", kind, " \"", wanted, "\": wanted one of ",
                   absl::StrJoin(names, ", "), DidYouMean(wanted, names)));
}

}  // namespace

absl::StatusOr<Similarity> MakeSimilarity(absl::string_view name) {
  return Find(Similarities(), "similarity", name);
}

std::vector<std::string> SimilarityNames() { return NamesOf(Similarities()); }

absl::StatusOr<Regularizer> MakeRegularizer(absl::string_view name) {
  return Find(Regularizers(), "regularizer", name);
}

std::vector<std::string> RegularizerNames() { return NamesOf(Regularizers()); }

}  // namespace mir::losses
