#!/bin/sh
# Pack aligned faces, a folder for each person, as InsightFace's training code reads them:
#     sh examples/insightface.sh PHOTOS FOLDER
# FOLDER gets train.rec, train.idx and property; give it to arcface_torch as config.rec.
set -eu
photos=${1:?usage: insightface.sh PHOTOS FOLDER}
folder=${2:?usage: insightface.sh PHOTOS FOLDER}

mkdir -p "$folder"
im2rec make-list --layout insightface "$folder/train" "$photos"
im2rec pack --layout insightface --resize 112 --center-crop "$folder/train" "$photos"
im2rec verify --for insightface --decode --list "$folder/train.lst" "$folder/train"
