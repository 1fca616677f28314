#ifndef TESTS_GOLDENS_HANDLERS_H_
#define TESTS_GOLDENS_HANDLERS_H_

#include "tests/goldens/golden_run.h"

namespace mir::goldens {

// One table per family of rooms, in handlers_<family>.cc. A new room adds its
// cases to a table, or a table here and in AllHandlers (goldens_main.cc).
HandlerTable GeometryHandlers();
HandlerTable LossHandlers();
HandlerTable MeasureHandlers();
HandlerTable ResamplingHandlers();
HandlerTable SwinHandlers();
HandlerTable TransMorphHandlers();
HandlerTable VfaHandlers();
HandlerTable VoxelMorphHandlers();

}  // namespace mir::goldens

#endif  // TESTS_GOLDENS_HANDLERS_H_
