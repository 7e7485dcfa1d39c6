#!/usr/bin/bash
echo left; sleep 1