#!/bin/sh
# Pack a class folder as the channels of SageMaker's image classification:
#     sh examples/sagemaker.sh PHOTOS FOLDER
# makes FOLDER/train/train.rec and FOLDER/validation/validation.rec, and prints the hyper-parameters
# that the training job must be given. To upload them:
#     aws s3 sync FOLDER s3://BUCKET/PREFIX --exclude '*' --include '*.rec'
set -eu
photos=${1:?usage: sagemaker.sh PHOTOS FOLDER}
folder=${2:?usage: sagemaker.sh PHOTOS FOLDER}

mkdir -p "$folder/train" "$folder/validation"
im2rec make-list --train-ratio 0.8 --stratify "$folder/set" "$photos"
im2rec pack --resize 256 --output "$folder/train/train" "$folder/set_train.lst" "$photos"
im2rec pack --resize 256 --output "$folder/validation/validation" "$folder/set_val.lst" "$photos"
im2rec verify --decode --for sagemaker-classification "$folder/train/train"
im2rec verify --decode "$folder/validation/validation" # which may do without some of the classes
im2rec inspect "$folder/train/train" | grep sagemaker
