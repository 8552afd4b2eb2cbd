"""Measurements of resistive networks: MNIST, digits, random circuits, in place against deployed."""
