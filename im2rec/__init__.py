"""im2rec packs image datasets into MXNet RecordIO (.lst, .rec, .idx) without MXNet.

The command line is `im2rec` or `python -m im2rec`; `im2rec-legacy` takes im2rec.py's. In Python:

    from im2rec import recordio                      in the place of mxnet.recordio
    from im2rec.make_list import make_list, ListOptions
    from im2rec.pack import pack_list, PackOptions
    from im2rec.inspection import inspect_set
    from im2rec.verify import verify_set, VerifyOptions
    from im2rec.indexing import index_set, join_indexes, salvage, IndexOptions

How the house is laid out; imports go down only:

    door     __main__              python -m im2rec
             legacy                old command lines, made into ours
    floor 5  cli                   the options, the commands, what they print of their reports
             terminal              the process around a command: streams, signals, exit codes
    floor 4  make_list  pack  inspection  verify  indexing  unpacking      the verbs; none imports
                                   another
             resume                what of a stopped run is used again
             face_set              what InsightFace wants of a set beside its images
             part                  what a worker does: rows in, records out, each to its place
    floor 3  recordio  shards      mxnet.recordio's API; the shards of a set while it is written
             list_family           which lists a prefix stands for
             dependencies          the list and images that a set is made of, for Make and Ninja
             identity_check        which records need no image: InsightFace's identities
             index_check           what is wrong with an index, beside its record files
             readers               what each reader asks of a set, as rules
             facts                 what these are about, gathered while a set is walked
             labelling             labels of others meet the images: the rows of a list
             record_set            a set on disk: its names, its manifest, its records
    floor 2  framing  image_record  index  lst  image_ops  pool      crafts; none imports another
             output                files whole or not at all
             depfile               the rules of a dependency file
             identities            InsightFace's records of identities
             annotations           labels as others keep them: CSV, COCO, Pascal VOC
             jpeg_scan             what a JPEG's scan says beside being decoded
    floor 1  image_file            what an image file says before it is decoded
             detection             the labels of a picture with boxes
             interrupts            holds signals back while something must be done whole
    ground   errors                imports nothing

Data walks through once:

    folder     -make_list-> entries -lst-> train.lst
    .csv .json .xml  -annotations, labelling: detection-> make_list's rows, in their place
    train.lst  -lst-> rows -pool, part: image_ops, image_record, framing-> shards
    shards     -output-> .rec .idx
    .rec .idx  -record_set, framing, image_record-> records
    records    -inspection-> Summary, -verify-> Problems -> cli
    records    -indexing-> .idx
    records    -unpacking-> folder, train.lst
"""

__version__ = "1.0.0"
