#!/usr/bin/bash
echo bad; exit 3