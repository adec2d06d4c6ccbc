// Workspaces of cuDNN's convolutions. NVIDIA publishes none: these are rules that measurements of
// Hopper with cuDNN 9.19 follow. Tensor cores read NHWC, and vectors of 16 bytes or 8 channels; so
// other layouts are copied, and few channels padded. Gradients of weights are sums over all points
// of all images: to have work for all multiprocessors, blocks of threads sum over a part of the
// points each, in 32 bits, and these partial sums are added in the end.
//
// Where a rule has a threshold, cuDNN's heuristics choose between kernels, by the time that they
// expect: the threshold is the size from which the measured choices were others.
#include "convolutions.h"

#define TILE ((int64_t)128 * 128 * 4) // bytes of a block's partial sums
#define MULTIPROCESSORS 132           // of the H100 and the H200
#define CLUSTERED 120                 // those that clusters of blocks can use

static int64_t up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
static int64_t tiles(int64_t value, int64_t size) { return (value + size - 1) / size; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// Return among how many blocks a sum over points is divided: s, or half as often, until each has
// enough of them. One block alone needs no partial sums.
static int64_t halved(int64_t s, int64_t points, int64_t enough) {
  while (s > 1 && points < s * enough)
    s /= 2;
  return s > 1 ? s : 0;
}

// Partial sums in TF32. The gradient is a matrix of channels by channels at all positions of the
// window, and consists of tiles. As many blocks share a tile as there are multiprocessors for it.
static int64_t sums_tf32(const convolution *c) {
  int64_t fewer = least(c->inputs, c->results), more = most(c->inputs, c->results);
  int64_t rows = more <= 64 || fewer < 128 ? 64 : 128, columns = more <= 64 ? 64 : 128;
  int64_t count = tiles(fewer * c->positions, columns) * tiles(more, rows);
  if (count > 2 * MULTIPROCESSORS)
    return 0;
  if (count > MULTIPROCESSORS) // one block on each, which goes on from tile to tile
    return c->y_points >= 2000 ? MULTIPROCESSORS * TILE : 0;
  if (count > MULTIPROCESSORS / 2)
    return c->y_points >= 6000 ? MULTIPROCESSORS / 2 * TILE : 0;
  int64_t s = halved(MULTIPROCESSORS / count, c->y_points, 1000);
  return s * count * rows * columns * 4;
}

// 1 x 1 with a stride, in 16 bits: few blocks, as the points are few.
static int64_t sums_strided(const convolution *c) {
  int64_t bytes = c->weights * 4, points = c->y_points;
  if (points < 25000 || bytes >= 40 * TILE)
    return 0;
  if (points < 90000)
    return bytes <= 16 * TILE ? 3 * bytes : 0;
  return bytes > 16 * TILE ? 8 * bytes : least(56 * TILE / bytes, 64) * bytes;
}

// Partial sums in 16 bits. A tile has channels by channels at one position of the window.
static int64_t sums_half(const convolution *c) {
  int64_t fewer = least(c->inputs, c->results), more = most(c->inputs, c->results);
  int64_t rows = fewer <= 64 ? 64 : 128, columns = more <= 64 ? 64 : 128;
  int64_t bytes = rows * columns * 4, points = c->y_points;
  int64_t count = c->positions * tiles(fewer, rows) * tiles(more, columns);
  if (c->positions == 1)
    return sums_strided(c);
  if (c->positions < 9 && c->patches) {
    int64_t weights = c->weights * 4;
    return points < 30000 ? 0 : (weights < 8 * TILE ? 15 : 3) * weights;
  }
  if (count > 2 * MULTIPROCESSORS) // blocks of a larger tile go on from one to the next
    return c->weights <= 4800000 && points >= 4096 ? 216 * TILE : 0;
  if (count > CLUSTERED / 2) {
    bool goes_on = points >= 16384 && !c->bfloat && c->results >= c->inputs;
    return goes_on ? (count < 100 ? CLUSTERED / 2 : CLUSTERED) * TILE : 0;
  }
  int64_t large = 2 * MULTIPROCESSORS / count; // blocks, if tiles are twice as large
  if (more > 128 && count >= 18 && points >= 9000 * large)
    return large * count * bytes;
  int64_t enough = bytes < TILE ? 2000 : c->bfloat ? 8000 : 5400;
  return halved(CLUSTERED / count, points, enough) * count * bytes;
}

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

// Partial sums of a 1 x 1 convolution in NHWC, which is one product of matrices.
static int64_t sums_product(const convolution *c) {
  int64_t bytes = c->results * c->inputs * 4, points = c->y_points;
  double weights = (double)bytes / TILE;
  if (c->width == 4) {
    if (points < 1000)
      return 0;
    if (weights < 0.3 && points >= 12544)
      return least(66, points / 1067) * TILE;
    if (weights < 0.9)
      return least(131, points / 95) * bytes;
    return least((weights < 3 ? 132 : 264) / weights, points / 190) * bytes;
  }
  bytes = c->results * up(c->inputs, 32) * 4;
  if (points < 6000)
    return 0;
  return least(weights < 0.5 ? 132 : 60 / weights, points / 1390) * bytes;
}

// Return the bytes of copies in NHWC, of w and what else is needed, with channels padded.
static int64_t copies(const convolution *c, bool of_x, bool of_y, int64_t vector) {
  int64_t inputs = up(c->inputs, vector), results = up(c->results, vector);
  int64_t values = inputs * results * c->positions * c->groups;
  values += of_x ? c->x_points * inputs * c->groups : 0;
  values += of_y ? c->y_points * results * c->groups : 0;
  return values * c->width + 16;
}

// The first layer of a network, whose images have fewer channels than a vector. Padding to 4 is for
// kernels that read pixels, to 8 for all others.
static int64_t images_half(const convolution *c) {
  bool plain = !c->last;
  switch (c->pass) {
  case RESULT:
    // Small windows, and few images, have a kernel that reads three channels as they are.
    if (c->positions < 25 && (!c->patches || c->y_points < 400000))
      return 0;
    if (c->volumes ? c->last || c->bfloat : c->patches && c->last && c->images <= 2)
      return 0;
    return copies(c, true, plain, c->volumes ? 1 : c->patches ? 8 : 4);
  case INPUT_GRADIENT:
    if (c->patches)
      return c->last || c->images <= 2 ? copies(c, true, true, 1) : 0;
    return copies(c, true, plain, 8);
  default:
    if (c->last && c->results < 64)
      return 35 * TILE; // sums only
    if (!c->patches && c->positions >= 25 && !c->volumes)
      return copies(c, true, plain, 4) + 8 * copies(c, false, false, 4) * 2;
    int64_t count = tiles(8 * c->positions, 128) * tiles(c->results, c->results <= 64 ? 64 : 128);
    int64_t s = least((258 + count / 2) / count, c->y_points / 1000);
    return copies(c, true, plain, 8) + s * copies(c, false, false, 8) * 2;
  }
}

static int64_t images_tf32(const convolution *c) {
  bool large = c->positions >= 16; // smaller windows are read as they are
  switch (c->pass) {
  case RESULT:
    if (!large || (c->patches && !c->last && c->images <= 2))
      return 0;
    return copies(c, true, !c->last, c->patches ? 4 : 1);
  case INPUT_GRADIENT:
    if (!c->last)
      return 0;
    return c->stride == 1 ? copies(c, true, false, 4) : copies(c, true, true, 1);
  default:
    if (!large || (c->patches && c->images <= 2))
      return 0;
    int64_t blocks = c->y_points < 100000 || c->volumes ? MULTIPROCESSORS : 2 * MULTIPROCESSORS;
    int64_t s = halved(blocks / tiles(4 * c->positions, 64), c->y_points, 500);
    return copies(c, true, true, 4) + (c->patches ? 0 : s * copies(c, false, false, 4));
  }
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

// Its gradient of weights: each image has a product, and they are added in the end.
static int64_t products_plain_weights(const convolution *c) {
  int64_t points = c->x_points, weights = c->weights, converted = c->x + c->y + 16;
  int64_t products = c->images * weights * 4;
  bool narrowing = c->inputs >= c->results;
  if (c->width == 4 && c->results % 4)
    return c->x + c->y_points * up(c->results, 4) * c->width;
  if (c->width == 4)
    return c->area % 4 && (narrowing || (points > 3000 && weights >= 1000000)) ? converted
                                                                               : products;
  bool many = points >= 50000 && products * (narrowing ? 1.7 : 1.1) > converted;
  bool converts = c->area < 100   ? narrowing || weights >= 500000 || points >= 10000
                  : c->area < 300 ? points >= 3000 && (weights >= 250000 || many)
                                  : false;
  if (!converts)
    return products;
  // Few partial sums, as in other products.
  double size = (double)weights * 4 / TILE;
  if (size < 8)
    return converted + (points >= 50000 ? 30 * TILE : 0);
  return converted + (size < 40 && points >= 700 * size ? 3 * weights * 4 : 0);
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
  int64_t sums = c->pass == WEIGHT_GRADIENT ? sums_product(c) : sums_channels(c);
  bool pads = c->pass != RESULT && c->width == 2 && c->results % 8;
  return sums + (pads ? c->y_points * up(c->results, 8) * c->width : 0);
}

// Depthwise: only gradients of weights are summed in parts, eight for each image.
static int64_t depthwise(const convolution *c) {
  if (c->pass != WEIGHT_GRADIENT || c->width == 4)
    return 0;
  int64_t bytes = c->positions * up(c->groups, 32) * 4;
  if (!c->last)
    return c->area >= 400 && (c->positions == 9 || c->images <= 64) ? c->x + c->y + c->w : 0;
  if (c->y_points >= 200000)
    return 0;
  int64_t parts = 8 * c->images * bytes;
  if (c->positions >= 25)
    return parts < (1 << 28) ? parts : 0;
  return c->groups <= 512 ? least(parts, 235 * bytes) : 0;
}

// Windows over several values, and 1 x 1 with a stride.
static int64_t windows(const convolution *c) {
  bool forward = c->pass == RESULT, tf32 = c->width == 4, single = c->positions == 1;
  int64_t summed = c->inputs * c->positions, few = most(c->inputs, c->results) <= 32;
  int64_t sums = c->pass != WEIGHT_GRADIENT ? sums_last_wave(c)
                 : tf32                     ? sums_tf32(c)
                                            : sums_half(c);
  if (c->last)
    return sums;
  // Few channels are read as they are.
  if (single && c->pass != WEIGHT_GRADIENT && !c->volumes &&
      c->inputs <= (forward ? 64
                    : tf32  ? 128
                            : 0))
    return 0;
  if (c->pass == WEIGHT_GRADIENT && tf32 && few && c->positions == 9 && c->stride == 1)
    return c->images * c->rows * 9 * up(c->inputs, 32) * up(c->results, 32) *
           4; // a sum for each row
  // Kernels for short sums in TF32 write NCHW. Weights of one position are the same in both.
  bool writes = forward && tf32 && !single &&
                ((summed <= 600 && (c->results > c->inputs || c->y_points < 100000)) ||
                 (summed <= 1200 && c->y_points < 12544));
  return c->x + (writes ? 0 : c->y) + (single ? 0 : c->w) + sums + 16;
}

static int64_t fastest(const convolution *c) {
  if (c->groups > 1 && c->inputs == 1)
    return depthwise(c);
  if (c->groups == 1 && c->inputs < (c->width == 2 ? 8 : 4))
    return c->width == 2 ? images_half(c) : images_tf32(c);
  if (!c->pointwise)
    return windows(c);
  if (c->area == 1) // both layouts are the same
    return 0;
  if (c->last)
    return products_last(c);
  return c->pass == WEIGHT_GRADIENT ? products_plain_weights(c) : products_plain(c);
}

// Return the workspace of the plan that needs most: a kernel for the other layout, with few
// channels padded, or a block of tiles on each multiprocessor.
static int64_t largest(const convolution *c) {
  bool few = c->groups == 1 && c->inputs < 8, weights = c->pass == WEIGHT_GRADIENT;
  int64_t bytes =
      few ? copies(c, true, !weights || !c->last, 8) : c->x + c->y + (c->positions == 1 ? 0 : c->w);
  if (!weights)
    return bytes;
  int64_t sums = most((c->positions == 1 ? CLUSTERED : 260) * TILE, c->weights * 4);
  return (c->last && !few ? 0 : bytes) + sums;
}

size_t convolution_workspace(const convolution *c, plan plan) {
  if (plan == WITHOUT_TENSOR_CORES || !c->width)
    return 0;
  int64_t bytes = fastest(c);
  return plan == FASTEST ? bytes : most(bytes, largest(c));
}
