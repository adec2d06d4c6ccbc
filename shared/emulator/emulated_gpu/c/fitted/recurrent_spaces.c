// Workspace and reserve space of cuDNN's recurrent layers. NVIDIA publishes none: these are rules
// that one H200 with PyTorch 2.11.0, CUDA 13.0 and cuDNN 9.19.0 follows. All 75 measured layers
// that were not used to find them (workspaces.json.xz) are within 2 % or 1 MiB. No other card or
// version was measured.
#include "recurrent.h"

static size_t most(size_t a, size_t b) { return a > b ? a : b; }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Return how many values of a sequence cuDNN works on at once, beside weights. It computes a layer
// after the other, and so takes no more for many: inputs, gates and gradients of all steps.
static size_t working_values(const recurrent *r, size_t steps) {
  size_t input = r->input, hidden = r->hidden, wider = most(input, hidden), values;
  bool is_lstm = r->gates == 4, is_gru = r->gates == 3, both = r->directions == 2;
  // The products of the layers of one direction overlap in chunks of 8 steps, unless they persist.
  bool chunked = r->layers > 1 && !both && !r->persists;
  if (both)
    values = steps * (6 * hidden + 2 * input + 4 * wider);
  else
    values = steps * (2 * hidden + 2 * input + wider) +
             (chunked ? least(steps, 8 * (r->layers + 1)) : steps) * hidden;
  if (r->layers > 1 && !chunked) // from layer to layer
    values += steps * r->directions * hidden;
  if (r->persists)
    values += steps * (is_lstm ? 12 : is_gru ? 14 : 9) * hidden;
  // Cells with gates have another way to compute, which takes more where inputs are narrow. Over
  // long sequences it keeps fewer values at a time.
  size_t narrow = 0;
  if (both && (is_lstm || is_gru))
    narrow = steps * ((is_lstm ? 14 : 12) * hidden + input);
  else if (is_lstm || is_gru)
    narrow = steps * (3 * hidden + input + r->drops * hidden);
  if (!both && is_gru && steps <= 400)
    narrow += steps * hidden;
  else if (!both && is_lstm && (steps <= 200 || r->persists))
    narrow += steps * 2 * hidden;
  else if (!both && is_lstm && steps <= 400)
    narrow += (steps + 46) * hidden;
  if (r->persists && is_lstm)
    narrow += steps * 16 * hidden;
  values = most(values, narrow);
  if (r->projected != r->hidden)
    values += steps * r->directions * r->projected;
  // Each layer has its states, and both directions copy them.
  return values + (size_t)r->layers * r->directions * ((is_lstm ? 10 : 5) + 2 * both) * hidden;
}

// Return how many values of a sequence stay for the backward pass: of an LSTM its gates and cell,
// of a GRU three more than its gates, of others their state; and the results of all layers but the
// last.
static size_t kept_values(const recurrent *r, size_t steps) {
  bool projects = r->projected != r->hidden;
  size_t cell = r->gates == 4 ? 5 + projects : r->gates == 3 ? 6 : 1;
  size_t values = r->layers * cell * r->hidden + (r->layers - 1) * (size_t)r->hidden;
  if (projects)
    values += (size_t)r->layers * r->projected;
  return steps * r->directions * values;
}

ENTRY cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t of,
                                              cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                              size_t *work, size_t *reserve) {
  const recurrent *r = (const recurrent *)of;
  const sequences *s = (const sequences *)x;
  int count = r->layers * r->directions;
  // Each layer and direction can run on a stream of its own, with 8 MiB for its products.
  *work = 8 * MIB * count + recurrent_matrices(r, count) * r->width +
          s->batch * working_values(r, s->length) * r->width;
  // Of dropout a bit stays for each value that both directions of a layer can give to the next.
  size_t outputs = (size_t)s->length * s->batch * r->directions * r->hidden;
  size_t bits = r->drops ? (r->layers - 1) * r->directions * outputs : 0;
  if (reserve && mode == CUDNN_FWD_MODE_TRAINING)
    *reserve = s->batch * kept_values(r, s->length) * r->width + bits / 8 + 256;
  else if (reserve)
    *reserve = 0;
  if (card.capability != 90 || CUDNN_VERSION / 100 != 919)
    called_by_name("cudnnGetRNNTempSpaceSizes(its sizes are as measured on Hopper with cuDNN "
                   "9.19)");
  return CUDNN_STATUS_SUCCESS;
}
