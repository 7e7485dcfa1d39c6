#!/usr/bin/bash
echo right; sleep 1