#ifndef MIR_DATA_DATASET_LIST_H_
#define MIR_DATA_DATASET_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/data/grid.h"
#include "mir/data/prepare.h"

namespace mir::data {

// An image of a list, and what its header says.
struct ListedImage {
  std::string image;
  std::string labels;  // Empty where the list has none.
  Grid grid;
};

struct ListedPair {
  ListedImage fixed;
  ListedImage moving;
};

// A dataset.json in the layout of the Learn2Reg challenge.
struct DatasetList {
  std::string path;
  // One of the two is empty: images to be drawn in pairs, or fixed pairs.
  std::vector<ListedImage> training_images;
  std::vector<ListedPair> training_pairs;
  std::vector<ListedPair> validation_pairs;  // May be empty.
  std::vector<std::string> notes;  // What a user should know, a line each.
};

// Reads a list and the headers of all its files. Paths are relative to the
// list's folder. Taken up are
//
//   training                       [{"image", "label"?}, ...], or
//                                  [{"fixed", "moving", "fixed_label"?,
//                                    "moving_label"?}, ...]
//   training_paired_images         pairs as above; where it is not empty,
//                                  `training` tells the labels only
//   validation, registration_val   either; pairs as above, or single images,
//                                  each then registered onto the one before
//
// A pair without labels of its own takes those that `training`, `validation` or
// `test` name for its images. Images of validation pairs are left out of
// `training_images`, if at least two others remain (Learn2Reg lists them in
// both places); `notes` says so.
//
// `with_training` false (for registering the pairs of a list) ignores what
// training needs.
//
// NOT_FOUND: there is no such list. INVALID_ARGUMENT lists all faults that one
// pass finds, each with its entry: no JSON; an empty or missing `training`; a
// single image, which has no partner; an entry of another kind; a file that is
// missing, cut short or no 3-D NIfTI; labels of another shape; the same file
// twice in a pair, or in the training images; and grids that differ within a
// pair (among images drawn in pairs: from the first) without a spacing.
absl::StatusOr<DatasetList> ReadDatasetList(const std::string& path,
                                            const PrepareOptions& options,
                                            bool with_training = true);

}  // namespace mir::data

#endif  // MIR_DATA_DATASET_LIST_H_
