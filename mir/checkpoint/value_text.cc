#include "mir/checkpoint/value_text.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense.h>

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mir::checkpoint {
namespace {

std::string TensorText(const at::Tensor& tensor) {
  std::string text = absl::StrCat(DtypeName(tensor.scalar_type()), "[",
                                  absl::StrJoin(tensor.sizes(), ", "), "]");
  std::vector<std::string> elements;
  if (tensor.numel() > 0) {
    // Element access that needs no arithmetic for the dtype.
    const at::Tensor flat = tensor.contiguous().view({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) {
      elements.push_back(
          absl::StrCat(at::_local_scalar_dense(flat[i]).toDouble()));
    }
  }
  return absl::StrCat(text, "(", absl::StrJoin(elements, " "), ")");
}

std::string Items(const std::vector<Value>& items) {
  return absl::StrJoin(items, ", ", [](std::string* out, const Value& item) {
    absl::StrAppend(out, ValueText(item));
  });
}

}  // namespace

std::string ValueText(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNone:
      return "None";
    case Value::Kind::kBool:
      return *value.boolean() ? "True" : "False";
    case Value::Kind::kInt:
      return absl::StrCat(*value.integer());
    case Value::Kind::kFloat:
      return absl::StrCat(*value.number());
    case Value::Kind::kString:
      return absl::StrCat("'", *value.string(), "'");
    case Value::Kind::kBytes:
      return absl::StrCat("b'", absl::CHexEscape(*value.bytes()), "'");
    case Value::Kind::kTensor:
      return TensorText(*value.tensor());
    case Value::Kind::kDtype:
      return absl::StrCat("torch.", DtypeName(*value.dtype()));
    case Value::Kind::kList:
      return absl::StrCat("[", Items(*value.items()), "]");
    case Value::Kind::kTuple:
      return absl::StrCat("(", Items(*value.items()), ")");
    case Value::Kind::kDict: {
      const Dict& dict = *value.dict();
      std::string text = dict.ordered() ? "OrderedDict{" : "{";
      for (const auto& [key, item] : dict.entries()) {
        absl::StrAppend(&text, text.back() == '{' ? "" : ", ", ValueText(key),
                        ": ", ValueText(item));
      }
      absl::StrAppend(&text, "}");
      if (!dict.attributes().is_none()) {
        absl::StrAppend(&text, "<", ValueText(dict.attributes()), ">");
      }
      return text;
    }
    case Value::Kind::kObject: {
      const Object& object = *value.object();
      std::string text = object.class_name;
      if (!object.args.is_none()) {
        absl::StrAppend(&text, "(", ValueText(object.args), ")");
      }
      if (!object.state.is_none()) {
        absl::StrAppend(&text, "<", ValueText(object.state), ">");
      }
      return text;
    }
  }
  return "";
}

}  // namespace mir::checkpoint
