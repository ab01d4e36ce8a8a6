// Dense networks from the dictionaries that describe their layers in Python.
#pragma once

#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "hive/dense.hpp"

namespace hive {

namespace py = pybind11;

inline Activation activation_of(const std::string& name) {
  if (name == "none") return Activation::none;
  if (name == "tanh") return Activation::tanh;
  if (name == "relu") return Activation::relu;
  if (name == "silu") return Activation::silu;
  throw py::value_error("activation is " + name + ", expected none, tanh, relu or silu");
}

inline DenseLayer layer_of(const py::dict& given) {
  DenseLayer layer{};
  layer.inputs = given["inputs"].cast<std::size_t>();
  layer.outputs = given["outputs"].cast<std::size_t>();
  layer.weight = given["weight"].cast<std::ptrdiff_t>();
  layer.bias = given["bias"].cast<std::ptrdiff_t>();
  if (given.contains("scale")) {
    layer.scale = given["scale"].cast<std::ptrdiff_t>();
    layer.shift = given["shift"].cast<std::ptrdiff_t>();
    layer.epsilon = given["epsilon"].cast<float>();
  }
  layer.activation = activation_of(given["activation"].cast<std::string>());
  return layer;
}

inline DenseNetwork network_of(const std::vector<std::vector<py::dict>>& branches, std::size_t parameters) {
  std::vector<Branch> made;
  for (const auto& branch : branches) {
    Branch& layers = made.emplace_back();
    for (const py::dict& layer : branch) layers.push_back(layer_of(layer));
  }
  return {std::move(made), parameters};
}

}  // namespace hive
