// Workspaces of gradients of weights: rules of the same H200 with PyTorch 2.11.0, CUDA 13.0 and
// cuDNN 9.19.0 as in convolutions.c, which also says how networks come out. Of measured ones that
// were not used to find them, within 2 % or 1 MiB are 82 % in layers of networks, 57 to 63 % of
// random ones.
//
// Such a gradient is a sum over all points of all images: to have work for all multiprocessors,
// blocks of threads sum over a part of the points each, in 32 bits, and these partial sums are
// added in the end.
#include "convolutions.h"

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
  int64_t rows = more <= 64 || (more <= 128 && fewer < 128) ? 64 : 128,
          columns = more <= 64 ? 64 : 128;
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
  // Blocks that share more than one tile have full tiles only.
  bool whole = fewer % 128 == 0 && more % 128 == 0;
  if (count > 2 * MULTIPROCESSORS) // blocks of a larger tile go on from one to the next
    return whole && c->positions < 25 && c->weights <= 4800000 && points >= 4096 ? 216 * TILE : 0;
  if (count > CLUSTERED / 2) {
    bool goes_on = whole && points >= 16384 && !c->bfloat && c->results >= c->inputs;
    return goes_on ? (count < 100 ? CLUSTERED / 2 : CLUSTERED) * TILE : 0;
  }
  int64_t large = 2 * MULTIPROCESSORS / count; // blocks, if tiles are twice as large
  if (whole && more > 128 && count >= 18 && points >= 9000 * large)
    return large * count * bytes;
  if (count >= 30 && bytes < TILE) // enough of them
    return 0;
  int64_t enough = bytes < TILE ? 2000 : c->bfloat ? 8000 : 5400;
  return halved(CLUSTERED / count, points, enough) * count * bytes;
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

// The first layer of a network, as in convolutions.c.
static int64_t images_half(const convolution *c) {
  bool plain = !c->last;
  if (c->last && c->results < 64)
    return 35 * TILE; // sums only
  if (!c->patches && c->positions >= 25 && !c->volumes)
    return copies(c, true, plain, 4) + 8 * copies(c, false, false, 4) * 2;
  int64_t count = tiles(8 * c->positions, 128) * tiles(c->results, c->results <= 64 ? 64 : 128);
  int64_t s = least((258 + count / 2) / count, c->y_points / 1000);
  return copies(c, true, plain, 8) + s * copies(c, false, false, 8) * 2;
}

static int64_t images_tf32(const convolution *c) {
  // Small windows are read as they are.
  if (c->positions < 16 || (c->patches && c->images <= 2))
    return 0;
  int64_t blocks = c->y_points < 100000 || c->volumes ? MULTIPROCESSORS : 2 * MULTIPROCESSORS;
  int64_t s = halved(blocks / tiles(4 * c->positions, 64), c->y_points, 500);
  return copies(c, true, true, 4) + (c->patches ? 0 : s * copies(c, false, false, 4));
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

// Depthwise: only gradients of weights are summed in parts, eight for each image.
static int64_t depthwise(const convolution *c) {
  if (c->width == 4)
    return 0;
  int64_t bytes = c->positions * up(c->groups, 32) * 4;
  if (!c->last) {
    bool few = c->area < 400 || (c->positions == 9 ? c->y_points < 300000 : c->images > 64);
    return few || c->bfloat ? 0 : c->x + c->y + c->w;
  }
  if (c->y_points >= 200000)
    return 0;
  int64_t parts = 8 * c->images * bytes;
  if (c->positions >= 25)
    return parts < (1 << 28) ? parts : 0;
  return c->groups <= 512 ? least(parts, 235 * bytes) : 0;
}

// Windows over several values, and 1 x 1 with a stride, in 16 bits: channels are padded to 8.
static int64_t windows_half(const convolution *c) {
  bool pads_x = c->inputs % 8, pads_y = c->results % 8;
  if (c->positions == 1)
    return sums_half(c) + (c->last ? 0 : c->x + c->y + 16);
  if (c->last && !pads_x && !pads_y)
    return sums_half(c);
  return sums_half(c) + (c->last ? copies(c, pads_x, pads_y, 8) : copies(c, true, true, 8));
}

// The same in TF32.
static int64_t windows_tf32(const convolution *c) {
  int64_t work = c->y_points * c->weights, weights = c->weights * 4;
  bool few = most(c->inputs, c->results) <= 32;
  if (c->positions >= 49 && work > 500000000) // large windows: up to 8 parts, within 200 MB
    return copies(c, true, true, 1) + weights + least(8, 200000000 / weights) * weights;
  if (c->last)
    return sums_tf32(c);
  if (c->positions == 1)
    return c->x + c->y + sums_tf32(c) + 16;
  if (work < 10000000) // not worth the copies
    return 0;
  if (few && c->positions == 9 && c->stride == 1) // a sum for each row
    return c->images * c->rows * 9 * up(c->inputs, 32) * up(c->results, 32) * 4;
  return copies(c, true, true, 4) + sums_tf32(c);
}

int64_t weights_gradient(const convolution *c) {
  bool half = c->width == 2;
  if (c->groups > 1 && c->inputs == 1)
    return depthwise(c);
  if (c->groups > 1 && (half || c->last)) // as other passes, and some parts
    return c->y_points * c->weights < 3000000 ? 0 : grouped(c) + 8 * c->weights * 4;
  if (c->groups == 1 && c->inputs < (half ? 8 : 4))
    return half ? images_half(c) : images_tf32(c);
  if (!c->pointwise)
    return half ? windows_half(c) : windows_tf32(c);
  if (c->area == 1) // both layouts are the same
    return 0;
  if (!c->last)
    return products_plain_weights(c);
  bool pads = half && c->results % 8;
  return sums_product(c) + (pads ? c->y_points * up(c->results, 8) * c->width : 0);
}
