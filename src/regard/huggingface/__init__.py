"""Hugging Face: conversion of models to runs and back, and runs as transformers models."""
