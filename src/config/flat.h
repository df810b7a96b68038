// The flat dictionary of the training guides: a configuration without the blocks training, distributed, checkpoint and
// monitor, whose keys stand at the top. It has defaults of its own.
#pragma once
#include "config/document.h"
#include "config/merge.h"

namespace trireme::config {

// Blocks of model and data beside the keys do not count.
bool is_flat(const YamlNode& root);

// The dictionary's defaults as soft settings; where one cannot hold beside what is given, the nearest that can, with a
// notice.
Settings flat_defaults(const Merge& given);

}  // namespace trireme::config
