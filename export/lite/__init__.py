"""LiteRT files: conversion, judgement, use."""
