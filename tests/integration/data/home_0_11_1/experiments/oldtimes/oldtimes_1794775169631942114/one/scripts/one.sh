#!/usr/bin/bash
echo one $COLOUR