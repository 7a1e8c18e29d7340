#!/bin/sh
# Builds the page into web/dist: index.html, viewer.js, viewer.css. Another folder may be given.
set -eu
cd "$(dirname "$0")"
out="${1:-dist}"
mkdir -p "$out"
esbuild src/main.tsx --bundle --minify --format=esm --target=es2022 --jsx-factory=h --jsx-fragment=Fragment \
  --charset=utf8 --log-level=warning --outfile="$out/viewer.js"
esbuild src/style.css --bundle --minify --charset=utf8 --log-level=warning --outfile="$out/viewer.css"
cp src/index.html "$out/index.html"
