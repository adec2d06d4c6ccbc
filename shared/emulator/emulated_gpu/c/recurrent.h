// A recurrent layer of cuDNN, as its descriptors describe it.
#ifndef RECURRENT_H
#define RECURRENT_H

#include "emulator.h"
#include <cudnn.h>

typedef struct recurrent {
  int gates, biases, directions, layers, input, hidden, projected, width; // width: bytes of a value
  cudnnDataType_t type;
  bool persists, drops; // one kernel for all steps; dropout between layers
} recurrent;

typedef struct sequences {
  int length, batch;
} sequences;

// Return how many values the matrices of so many layers and directions have.
size_t recurrent_matrices(const recurrent *r, int count);

#endif
