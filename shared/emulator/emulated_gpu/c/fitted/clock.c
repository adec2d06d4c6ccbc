// The duration of the libraries' work on the card: products, convolutions, copies, messages. That
// of PyTorch's own kernels is estimated in inside/work.py.
//
// What is reached of a card's rates was fitted on one H200 with PyTorch 2.11.0, CUDA 13.0 and cuDNN
// 9.19.0; other cards differ by their rates alone. What only convolutional networks have is from
// profiles of twelve networks of torchvision. Of twelve others, whose errors had shown which rules
// were missing, the time in which the GPU is busy is off by 4 % in the median and by 16 % at worst.
// On other cards and versions it was not measured.
#include "convolutions.h"
#include "emulator.h"
#include <math.h>

// What a card reaches of its highest rates, and the ns that work takes before it is at that rate:
// of products of 47 shapes of transformers, from which it was fitted, with errors of 6 % in the
// median, and within 17 % in nine of ten (`rates` in h200.jsonl.xz). A product takes as long as its
// arithmetic at NEAR the highest rate, and as long as a multiprocessor needs to feed its tensor
// cores, which takes it cycles of its clock: on cards whose tensor cores are slower beside that,
// less is lost.
#define NEAR 0.95
typedef struct efficiency {
  double fed, start; // operations per cycle of a multiprocessor, ns
} efficiency;
static const efficiency FP32 = {0.91e3, 12e3}, HALF = {16.2e3, 4e3};
// Tensor cores read TF32 along the sums; other layouts are transposed on the way.
static const efficiency TF32 = {3.9e3, 12e3}, TF32_ACROSS = {1.62e3, 12e3};
// Convolutions: those of images, which have few channels. Per cycle of a multiprocessor: products
// of depthwise ones, bytes of images without vectors of 16 bytes, and of copies in another layout.
static const efficiency CONVOLUTION = {12e3, 5e3}, FEW_CHANNELS = {0.33e3, 5e3};
#define DEPTHWISE 20
#define UNALIGNED 2.4
#define LAYOUT 7.3
#define INSIDE 0.78 // of the memory's rate: a copy on the card
#define LINK 0.85   // of the link's rate to the host, and to other GPUs
#define PAGEABLE 16 // bytes per ns from or to memory of the host that is not pinned
// Bytes that a thread of an elementwise kernel moves: four values of 16 bits, from two tensors into
// a third. It stands for kernels of which nothing else is known: those that compilers make.
#define OF_THREAD 24
#define ELEMENTWISE 0.68 // of the memory's rate

// Before PyTorch 2.9, the library is not told what operations do (inside/kernels.py), and norms,
// attention or an optimizer's step would take as long as their few threads. So products take the
// time of these, too: in updates of ViT-L in 16 bits on the H200, of 16 images at once and more,
// products take this share of the time without elementwise kernels, in the median.
#define PRODUCTS 0.59

static work at_least(const char *kind, double ns) { return (work){kind, ns > LEAST ? ns : LEAST}; }

static double time_of(efficiency reached, double flop, double rate) {
  return reached.start + flop / (rate * NEAR) + flop / (card.cycles * reached.fed);
}

work work_of_threads(dim3 grid, dim3 block) {
  if (stream_knows_operation()) // which will say how long it takes
    return (work){"kernel", LEAST};
  double threads = (double)grid.x * grid.y * grid.z * block.x * block.y * block.z;
  return at_least("kernel", threads * OF_THREAD / (card.memory * ELEMENTWISE));
}

work work_of_copying(bool inside, bool pageable, size_t bytes) {
  double link = pageable ? PAGEABLE : card.link * LINK;
  double rate = inside ? card.memory / 2 * INSIDE : link < card.link ? link : card.link;
  return at_least("kernel", bytes / rate);
}

work work_of_sending(double bytes) { return at_least("send", bytes / (card.gpus * LINK)); }

work work_of_convolution(const convolution *c, plan plan, double copied) {
  bool few = c->groups == 1 && c->inputs < 8, cores = plan != WITHOUT_TENSOR_CORES;
  double rate = c->width == 2 && cores ? card.half : card.tf32 && cores ? card.tf32 : card.fp32;
  efficiency reached = !cores ? FP32 : few ? FEW_CHANNELS : CONVOLUTION;
  int64_t channels = c->pass == RESULT ? c->results : c->inputs;
  if (cores && !few) // a tile that they fill in part is fed like others
    reached.fed *= (double)channels / up(channels, 128);
  double products = (double)c->y_points * c->weights, moved = c->x + c->y;
  double memory = card.memory * ELEMENTWISE, layout = card.cycles * LAYOUT;
  double ns = time_of(reached, 2 * products, rate);
  if (c->groups > 1 && c->inputs == 1) // depthwise: every value is read for its own sum
    ns = reached.start + moved / memory + products / (card.cycles * DEPTHWISE);
  else if (c->pointwise && !c->last && c->width == 2 && c->area % 8 && copied < moved)
    ns = fmax(ns, reached.start + moved / (card.cycles * UNALIGNED));
  return at_least("product", ns + 2 * copied / fmin(layout, memory));
}

static bool is_half(cudaDataType type) { return type == CUDA_R_16F || type == CUDA_R_16BF; }

work work_of_product(cudaDataType type, bool tf32, bool along, double flop) {
  bool single = type == CUDA_R_32F, cores = single && tf32 && card.tf32;
  efficiency reached = cores ? (along ? TF32 : TF32_ACROSS) : single ? FP32 : HALF;
  double rate = cores ? card.tf32 : single ? card.fp32 : card.half;
  if (!single && !is_half(type) && type != CUDA_R_64F)
    rate *= 2; // 8 bits
  double ns = time_of(reached, flop, rate);
  if (rate > card.fp32 && !stream_knows_operation())
    ns /= PRODUCTS;
  return at_least("product", ns);
}
