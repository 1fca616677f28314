#include "mir/data/dataset_list.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "mir/base/status_macros.h"
#include "mir/data/nifti.h"

namespace mir::data {
namespace {

// One spelling for all paths that lead to the same file.
std::string OneName(const std::string& path) {
  std::error_code error;
  return std::filesystem::weakly_canonical(path, error).string();
}

using nlohmann::json;

constexpr size_t kFaultsShown = 20;

// Reads a list part by part and collects what is wrong with it.
class ListReader {
 public:
  ListReader(const std::string& path, json root, const PrepareOptions& options)
      : folder_(std::filesystem::path(path).parent_path()),
        root_(std::move(root)),
        options_(options) {
    list_.path = path;
  }

  absl::StatusOr<DatasetList> Read(bool with_training) {
    for (const char* key : {"training", "validation", "test"}) {
      CollectLabels(key);
    }
    ReadValidation();
    if (with_training) ReadTraining();
    if (faults_.empty()) return std::move(list_);
    return absl::InvalidArgumentError(Faults());
  }

 private:
  // `where` is an entry's name, such as "training[3]".
  void Fault(const std::string& where, absl::string_view what) {
    std::string fault = absl::StrCat(where, ": ", what);
    if (std::find(faults_.begin(), faults_.end(), fault) == faults_.end()) {
      faults_.push_back(std::move(fault));
    }
  }

  std::string Faults() const {
    if (faults_.size() == 1) return absl::StrCat(list_.path, ": ", faults_[0]);
    std::string text =
        absl::StrCat(list_.path, " has ", faults_.size(), " faults:");
    for (size_t at = 0; at < faults_.size() && at < kFaultsShown; ++at) {
      absl::StrAppend(&text, "\n  ", faults_[at]);
    }
    if (faults_.size() > kFaultsShown) {
      absl::StrAppend(&text, "\n  and ", faults_.size() - kFaultsShown,
                      " more");
    }
    return text;
  }

  std::string PathOf(const std::string& listed) const {
    return (folder_ / listed).lexically_normal().string();
  }

  // The entries of a part; none where it is absent.
  std::vector<json> Entries(const std::string& key) {
    const auto part = root_.find(key);
    if (part == root_.end() || part->is_null()) return {};
    if (!part->is_array()) {
      Fault(key, "wanted a list in brackets");
      return {};
    }
    return part->get<std::vector<json>>();
  }

  // What single images' labels are, quietly: faults are told where an entry is
  // used.
  void CollectLabels(const char* key) {
    const auto part = root_.find(key);
    if (part == root_.end() || !part->is_array()) return;
    for (const json& entry : *part) {
      if (!entry.is_object()) continue;
      const auto image = entry.find("image");
      const auto labels = entry.find("label");
      if (image == entry.end() || labels == entry.end() ||
          !image->is_string() || !labels->is_string()) {
        continue;
      }
      labels_of_.emplace(OneName(PathOf(image->get<std::string>())),
                         PathOf(labels->get<std::string>()));
    }
  }

  // A path in an entry, or empty where there is none or it is wrong.
  std::string PathIn(const json& entry, const std::string& where,
                     const char* key, bool required) {
    const auto value = entry.find(key);
    if (value == entry.end() || value->is_null()) {
      if (required)
        Fault(where, absl::StrCat("wanted a file as \"", key, "\""));
      return "";
    }
    if (!value->is_string() || value->get<std::string>().empty()) {
      Fault(absl::StrCat(where, ".", key), "wanted a file's name in quotes");
      return "";
    }
    return PathOf(value->get<std::string>());
  }

  // The grid of a file; a fault for the first entry that names it otherwise.
  absl::optional<Grid> GridOfFile(const std::string& path,
                                  const std::string& where) {
    const auto known = grids_.find(path);
    if (known != grids_.end()) return known->second;
    const absl::StatusOr<Grid> grid = ReadGrid(path);
    absl::optional<Grid> result;
    if (grid.ok()) {
      result = *grid;
    } else {
      Fault(where, grid.status().message());
    }
    grids_.emplace(path, result);
    return result;
  }

  // Completes `listed`; false where a file is not as it should be.
  bool ReadHeaders(const std::string& where, ListedImage& listed) {
    if (listed.image.empty()) return false;
    const auto grid = GridOfFile(listed.image, where);
    if (!grid.has_value()) return false;
    listed.grid = *grid;
    if (listed.labels.empty()) return true;
    const auto labels = GridOfFile(listed.labels, where);
    if (!labels.has_value()) return false;
    const absl::Status status =
        CheckLabels(listed.image, *grid, listed.labels, *labels);
    if (!status.ok()) Fault(where, status.message());
    return status.ok();
  }

  bool ReadSingle(const json& entry, const std::string& where,
                  ListedImage& listed) {
    listed.image = PathIn(entry, where, "image", /*required=*/true);
    listed.labels = PathIn(entry, where, "label", /*required=*/false);
    return ReadHeaders(where, listed);
  }

  static bool SameFile(const std::string& a, const std::string& b) {
    if (a == b) return true;
    std::error_code error;
    return std::filesystem::equivalent(a, b, error) && !error;
  }

  bool CheckPair(const std::string& where, const ListedPair& pair) {
    if (SameFile(pair.fixed.image, pair.moving.image)) {
      Fault(where, absl::StrCat("the fixed and the moving image are one file, ",
                                pair.fixed.image));
      return false;
    }
    const absl::Status status =
        NetworkGrid(pair.fixed.image, pair.fixed.grid, pair.moving.image,
                    pair.moving.grid, options_)
            .status();
    if (!status.ok()) Fault(where, status.message());
    return status.ok();
  }

  bool ReadPair(const json& entry, const std::string& where, ListedPair& pair) {
    const auto read = [&](const char* image, const char* labels,
                          ListedImage& listed) {
      listed.image = PathIn(entry, where, image, /*required=*/true);
      listed.labels = PathIn(entry, where, labels, /*required=*/false);
      if (listed.labels.empty()) {
        const auto known = labels_of_.find(OneName(listed.image));
        if (known != labels_of_.end()) listed.labels = known->second;
      }
      return ReadHeaders(absl::StrCat(where, ".", image), listed);
    };
    // Both, so that all faults are told.
    const bool fixed = read("fixed", "fixed_label", pair.fixed);
    const bool moving = read("moving", "moving_label", pair.moving);
    return fixed && moving && CheckPair(where, pair);
  }

  // The images and pairs of a part: one of the two stays empty.
  void ReadPart(const std::string& key, std::vector<ListedImage>& images,
                std::vector<ListedPair>& pairs) {
    const std::vector<json> entries = Entries(key);
    bool single = false, paired = false;
    for (size_t at = 0; at < entries.size(); ++at) {
      const std::string where = absl::StrCat(key, "[", at, "]");
      const json& entry = entries[at];
      if (entry.is_object() && entry.contains("image")) {
        single = true;
        ListedImage image;
        if (ReadSingle(entry, where, image)) images.push_back(image);
      } else if (entry.is_object() &&
                 (entry.contains("fixed") || entry.contains("moving"))) {
        paired = true;
        ListedPair pair;
        if (ReadPair(entry, where, pair)) pairs.push_back(pair);
      } else {
        Fault(where,
              "wanted {\"image\": ...} or {\"fixed\": ..., \"moving\": ...}");
      }
    }
    if (single && paired) {
      Fault(key, "wanted single images or pairs, found both");
    }
  }

  void ReadValidation() {
    std::string key = "registration_val";
    if (!Entries("validation").empty()) {
      if (!Entries(key).empty()) {
        Fault("validation",
              "registration_val is there too; wanted one of "
              "them");
      }
      key = "validation";
    }
    std::vector<ListedImage> images;
    ReadPart(key, images, list_.validation_pairs);
    if (images.empty()) return;
    if (images.size() == 1) {
      Fault(key, "a single image has no partner; wanted two or more");
    }
    for (size_t at = 0; at + 1 < images.size(); ++at) {
      const ListedPair pair = {images[at], images[at + 1]};
      if (CheckPair(absl::StrCat(key, "[", at + 1, "]"), pair)) {
        list_.validation_pairs.push_back(pair);
      }
    }
  }

  void ReadTraining() {
    if (!Entries("training_paired_images").empty()) {
      std::vector<ListedImage> none;
      ReadPart("training_paired_images", none, list_.training_pairs);
      if (!none.empty()) {
        Fault("training_paired_images", "wanted pairs, found single images");
      }
      return;
    }
    if (Entries("training").empty()) {
      const auto part = root_.find("training");
      if (part == root_.end() || part->is_null() || part->is_array()) {
        Fault("training", "it is empty or missing; wanted images or pairs");
      }
      return;
    }
    std::vector<ListedImage> images;
    const size_t faults_before = faults_.size();
    ReadPart("training", images, list_.training_pairs);
    if (faults_.size() == faults_before && list_.training_pairs.empty()) {
      CheckTrainingImages(images);
    }
  }

  void CheckTrainingImages(std::vector<ListedImage> images) {
    std::map<std::string, size_t> first_use;
    for (size_t at = 0; at < images.size(); ++at) {
      const std::string file = OneName(images[at].image);
      const auto [known, is_new] = first_use.emplace(file, at);
      if (!is_new) {
        Fault(absl::StrCat("training[", at, "]"),
              absl::StrCat(images[at].image, " is training[", known->second,
                           "] already"));
      }
    }
    if (images.size() == 1) {
      Fault("training", "a single image has no partner; wanted two or more");
      return;
    }

    std::set<std::string> held_out;
    for (const ListedPair& pair : list_.validation_pairs) {
      held_out.insert(OneName(pair.fixed.image));
      held_out.insert(OneName(pair.moving.image));
    }
    std::vector<ListedImage> kept;
    for (const ListedImage& image : images) {
      if (held_out.count(OneName(image.image)) == 0) kept.push_back(image);
    }
    if (kept.size() != images.size()) {
      const bool enough = kept.size() >= 2;
      list_.notes.push_back(
          absl::StrCat(images.size() - kept.size(), " of ", images.size(),
                       " training images are in validation pairs too: ",
                       enough ? "they are left out of training"
                              : "too few others, so they are trained on"));
      if (enough) images = std::move(kept);
    }

    for (size_t at = 1; at < images.size(); ++at) {
      const absl::Status status =
          NetworkGrid(images[0].image, images[0].grid, images[at].image,
                      images[at].grid, options_)
              .status();
      if (!status.ok()) {
        Fault("training", status.message());
        break;  // One shows it.
      }
    }
    list_.training_images = std::move(images);
  }

  const std::filesystem::path folder_;
  const json root_;
  const PrepareOptions options_;
  std::map<std::string, std::string> labels_of_;
  std::map<std::string, absl::optional<Grid>> grids_;
  std::vector<std::string> faults_;
  DatasetList list_;
};

}  // namespace

absl::StatusOr<DatasetList> ReadDatasetList(const std::string& path,
                                            const PrepareOptions& options,
                                            bool with_training) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (!file || std::filesystem::is_directory(path, error)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no such list; wanted a dataset.json"));
  }
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  json root;
  try {
    root = json::parse(text);
  } catch (const json::exception& exception) {
    // "[json.exception.parse_error.101] parse error at line 3, column 5: ..."
    absl::string_view what = exception.what();
    what.remove_prefix(std::min(what.size(), what.find("] ") + 2));
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is no JSON: ", what));
  }
  if (!root.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": wanted an object {...} with \"training\" as Learn2Reg's"));
  }
  return ListReader(path, std::move(root), options).Read(with_training);
}

}  // namespace mir::data
