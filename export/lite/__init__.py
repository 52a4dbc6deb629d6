"""LiteRT files: conversion, evaluation, use."""
