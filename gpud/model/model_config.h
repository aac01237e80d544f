// SPDX-License-Identifier: Apache-2.0
// The first half of opening a model file: its metadata as struct model_config. Part of model_file,
// which is the module's face; pure functions on an open gguf.
#ifndef KVTIER_GPUD_MODEL_MODEL_CONFIG_H
#define KVTIER_GPUD_MODEL_MODEL_CONFIG_H

#include "gpud/model/model_file.h"

// Fills everything but vocab_count, tied_output and the rope factors, which come from tensors.
// STATUS_INVALID, STATUS_UNSUPPORTED.
enum status model_config_read(const struct gguf *gguf, struct model_config *out,
                              struct reason *reason) KV_MUST_CHECK;

#endif
