// Workspaces of cuDNN's convolutions. NVIDIA publishes none: these are rules that one H200 with
// PyTorch 2.11.0, CUDA 13.0 and cuDNN 9.19.0 follows. Of measured ones that were not used to find
// them (convolutions.json.xz), within 2 % or 1 MiB are 93 % of results and 96 % of gradients of
// inputs in layers of networks, 86 and 85 % of random ones. Of twelve networks of torchvision that
// were not used, all need what was predicted, within 0.6 %, but only six reserve it within 2 %, the
// others -6.2 to +5.8 %; of fourteen programs of other kinds nine, the others -16 to +6 %. With
// cudnn.benchmark, for groups of several channels, and for TF32 that is off, less is known; no
// other card or version was measured.
//
// Tensor cores read NHWC, and vectors of 16 bytes or 8 channels; so other layouts are copied, and
// few channels padded. Gradients of weights: convolution_gradients.c
// Where a rule has a threshold, cuDNN's heuristics choose between kernels, by the time that they
// expect: the threshold is the size from which the measured choices were others.
#include "convolutions.h"

// The tiles of a result rarely fill all multiprocessors in the last wave. If they fill at most
// half of them, all share these tiles, and each sums over a part of the channels and positions.
static int64_t sums_last_wave(const convolution *c) {
  bool half = c->width == 2, forward = c->pass == RESULT;
  int64_t channels = forward ? c->results : c->inputs;
  int64_t sum = (forward ? c->inputs : c->results) * c->positions;
  int64_t points = forward ? c->y_points : c->x_points, columns = half ? 256 : 128;
  if (c->stride > 1 || c->groups > 1 || half == forward || c->bfloat || channels < 128 ||
      (half && channels % columns))
    return 0;
  int64_t count = tiles(points, 128) * tiles(channels, columns), left = count % MULTIPROCESSORS;
  if (count < MULTIPROCESSORS || !left || left > MULTIPROCESSORS / 2)
    return 0;
  int64_t enough = c->pointwise ? 512 : half ? 288 : 96;
  int64_t s = least(MULTIPROCESSORS / left, sum / enough);
  return s > 1 ? left * s * 128 * columns * 4 : 0;
}

// The first layer of a network, whose images have fewer channels than a vector. Padding to 4 is for
// kernels that read pixels, to 8 for all others.
static int64_t images_half(const convolution *c) {
  if (c->pass == RESULT) {
    // Many results are worth the padding.
    if (!c->last && c->results >= 320 && c->y_points * c->weights > 300000000)
      return copies(c, true, true, 8);
    // Small windows, and few images, have a kernel that reads three channels as they are.
    if (c->positions < 25 && (!c->patches || c->y_points < 400000))
      return 0;
    if (c->volumes ? c->last || c->bfloat : c->patches && c->last && c->images <= 2)
      return 0;
    return copies(c, true, !c->last, c->volumes ? 1 : c->patches ? 8 : 4);
  }
  if (c->patches)
    return c->last || c->images <= 2 ? copies(c, true, true, 1) : 0;
  return copies(c, true, !c->last, 8);
}

static int64_t images_tf32(const convolution *c) {
  if (c->pass == RESULT) {
    // Smaller windows are read as they are.
    if (c->positions < 16 || (c->patches && !c->last && c->images <= 2))
      return 0;
    return copies(c, true, !c->last, c->patches ? 4 : 1);
  }
  if (!c->last)
    return 0;
  return c->stride == 1 ? copies(c, true, false, 4) : copies(c, true, true, 1);
}

// 1 x 1 in NCHW: it is a product for each image, without copies, or one product for all of them in
// NHWC. That is faster where images are small, and weights or images are many.
static int64_t products_plain(const convolution *c) {
  int64_t points = c->x_points, weights = c->weights, area = c->area;
  bool half = c->width == 2, narrowing = c->inputs > c->results, aligned = !(area % (half ? 8 : 4));
  if (c->results % (half ? 8 : 4))
    return 0;
  bool large = weights >= 500000, small = area < 100 && points >= 400;
  bool slow =
      weights >= 300000 || (!aligned && (c->pass == RESULT || (points >= 10000 && !narrowing)));
  bool converts = half ? (small && slow) || (large && area < 256 && points >= 12544)
                       : !aligned && large && points >= 400;
  return converts ? c->x + c->y + 16 : 0;
}

// A product in TF32 with few tiles and long sums over channels: a part of them for each block.
static int64_t sums_channels(const convolution *c) {
  int64_t channels = c->pass == RESULT ? c->results : c->inputs;
  int64_t summed = c->pass == RESULT ? c->inputs : c->results;
  int64_t count = tiles(c->y_points, 128) * tiles(channels, 128);
  if (c->width == 2)
    return 0;
  if (count > 8)
    return sums_last_wave(c);
  return summed >= 480 ? least(16, summed / 80) * c->y_points * channels * 4 : 0;
}

// 1 x 1 in NHWC: only what has few results is copied, to pad them.
static int64_t products_last(const convolution *c) {
  bool pads = c->pass != RESULT && c->width == 2 && c->results % 8;
  return sums_channels(c) + (pads ? c->y_points * up(c->results, 8) * c->width : 0);
}

// Windows over several values, and 1 x 1 with a stride, in 16 bits.
static int64_t windows_half(const convolution *c) {
  bool forward = c->pass == RESULT, single = c->positions == 1;
  bool pads_x = c->inputs % 8, pads_y = c->results % 8;
  if (c->last && !pads_x && !pads_y)
    return sums_last_wave(c);
  // For short sums and for small work, tensor cores are not worth the copies.
  int64_t summed = c->inputs * c->positions;
  if (forward && !single && summed <= 124 && (c->inputs < 16 || c->y < 110000))
    return 0;
  if (!forward && c->y < 12000 && c->positions <= 25)
    return 0;
  // Many points of few channels are read as they are, as in ResNet-18.
  bool few = c->inputs <= 64 && c->y_points >= 300000;
  if (single)
    return c->last || (forward && (c->results < 8 || few)) ? 0 : c->x + c->y + 16;
  return c->last ? copies(c, pads_x, pads_y, 8) : copies(c, true, true, 8) + sums_last_wave(c);
}

// The same in TF32.
static int64_t windows_tf32(const convolution *c) {
  bool forward = c->pass == RESULT, single = c->positions == 1;
  int64_t summed = c->inputs * c->positions, work = c->y_points * c->weights;
  if (c->last) { // large windows, and large strides back, have kernels that do not read NHWC
    bool large = forward         ? c->positions >= 36 && summed > 980
                 : c->stride > 2 ? work > 40000000
                                 : c->positions > 190 && c->y_points > 2000;
    return large ? copies(c, forward, !forward, 1) : sums_last_wave(c);
  }
  // Few channels are read as they are, and small work is not worth the copies.
  if (single)
    return !c->volumes && c->inputs <= (forward ? 64 : 128) ? 0
                                                            : c->x + c->y + sums_last_wave(c) + 16;
  if (forward ? summed <= 240 && (c->y < 106000 || most(c->inputs, c->results) <= 40)
              : work < 110000000)
    return 0;
  // Kernels for short sums write NCHW.
  bool writes = forward && ((summed <= 600 && (c->results > c->inputs || c->y_points < 100000)) ||
                            (summed <= 1200 && c->y_points < 12544));
  return copies(c, true, !writes, 4) + sums_last_wave(c);
}

static int64_t fastest(const convolution *c) {
  if (c->pass == WEIGHT_GRADIENT)
    return weights_gradient(c);
  // Groups in TF32 go back as other windows do, but for depthwise ones, and those in NHWC.
  bool as_windows = c->width == 4 && c->pass == INPUT_GRADIENT && c->inputs > 1 && !c->last;
  if (c->groups > 1)
    return as_windows ? windows_tf32(c) : grouped(c);
  if (c->inputs < (c->width == 2 ? 8 : 4))
    return c->width == 2 ? images_half(c) : images_tf32(c);
  if (!c->pointwise)
    return c->width == 2 ? windows_half(c) : windows_tf32(c);
  if (c->area == 1) // both layouts are the same
    return 0;
  return c->last ? products_last(c) : products_plain(c);
}

// Return the workspace of the plan that needs most: a kernel for the other layout, with few
// channels padded, or a block of tiles on each multiprocessor.
static int64_t largest(const convolution *c) {
  bool few = c->groups == 1 && c->inputs < 8, weights = c->pass == WEIGHT_GRADIENT;
  int64_t vector = c->groups > 1 ? least(group_size(c), 32) : few || c->width == 2 ? 8 : 4;
  int64_t bytes = copies(c, true, !few || !weights || !c->last, vector);
  if (!weights)
    return bytes;
  int64_t sums = most((c->positions == 1 ? CLUSTERED : 260) * TILE, c->weights * 4);
  return (c->last && !few && c->groups == 1 ? 0 : bytes) + sums;
}

size_t convolution_workspace(const convolution *c, plan plan) {
  if (plan == WITHOUT_TENSOR_CORES || !c->width)
    return 0;
  int64_t bytes = fastest(c);
  return plan == FASTEST ? bytes : most(bytes, largest(c));
}
