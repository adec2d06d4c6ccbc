// A convolution as the rules of convolutions.c (results, gradients of inputs) and
// convolution_gradients.c (of weights) see it, and the workspaces of what computes it.
#ifndef CONVOLUTIONS_H
#define CONVOLUTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// As cuDNN names it: y = x * w. A pass computes one of them from the others; the forward pass of a
// transposed layer computes x.
typedef enum pass { RESULT, INPUT_GRADIENT, WEIGHT_GRADIENT } pass;

typedef struct convolution {
  pass pass;
  int width;                         // bytes of a value: 2, or 4 for TF32; 0 if no rule is known
  bool bfloat, last, volumes;        // bf16; channels are last; three dimensions of space
  bool pointwise, patches;           // 1 x 1 without stride; windows do not overlap
  int64_t images, inputs, results;   // channels are those of a group
  int64_t groups, positions, stride; // positions of the window
  int64_t area, rows;                // of a channel of x; of y
  int64_t x_points, y_points;        // of a channel, in all images
  int64_t x, y, w;                   // bytes
  int64_t weights;                   // values of w
} convolution;

// Plans that the heuristics return. PyTorch takes the first that its settings allow. With
// torch.backends.cudnn.benchmark it tries all, and allocates the largest workspace for that.
typedef enum plan { FASTEST, LARGEST, WITHOUT_TENSOR_CORES } plan;

size_t convolution_workspace(const convolution *c, plan plan);
// How long it takes, with so many bytes of copies: in clock.c.
struct work work_of_convolution(const convolution *c, plan plan, double copied);

// For the rules themselves.
#define TILE ((int64_t)128 * 128 * 4) // bytes of a block's partial sums
#define MULTIPROCESSORS 132           // of the H100 and the H200
#define CLUSTERED 120                 // those that clusters of blocks can use

static inline int64_t up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
static inline int64_t tiles(int64_t value, int64_t size) { return (value + size - 1) / size; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// Return the bytes of copies in NHWC, of w and what else is needed, with channels padded.
static inline int64_t copies(const convolution *c, bool of_x, bool of_y, int64_t vector) {
  int64_t inputs = up(c->inputs, vector), results = up(c->results, vector);
  int64_t values = inputs * results * c->positions * c->groups;
  values += of_x ? c->x_points * inputs * c->groups : 0;
  values += of_y ? c->y_points * results * c->groups : 0;
  return values * c->width + 16;
}

// Return the channels of a kernel's groups, to which fewer are padded: 4, 8, 16 or 32; 64 if there
// are more.
static inline int64_t group_size(const convolution *c) {
  int64_t size = 4;
  while (size < most(c->inputs, c->results) && size <= 32)
    size *= 2;
  return size;
}

// Larger groups are converted to NCHW, if they are not, with a product for each.
static inline int64_t grouped(const convolution *c) {
  int64_t size = group_size(c);
  if (c->inputs == 1 && c->pass != WEIGHT_GRADIENT) // depthwise: in place, but for the way back
    if (c->pass == RESULT || c->width == 4 || (c->results == 1 && !c->volumes))
      return 0;
  if (c->width == 4 && c->last)
    return c->inputs * c->positions >= 300 ? copies(c, true, true, 1) : 0;
  bool small = size <= 32, pads_x = c->inputs < size, pads_y = c->results < size;
  if (!c->last)
    return copies(c, true, true, small ? size : 8);
  if (small)
    return pads_x || pads_y ? copies(c, pads_x, pads_y, size) : 0;
  return c->volumes ? 0 : copies(c, true, true, 1);
}

int64_t weights_gradient(const convolution *c); // in convolution_gradients.c

#endif
