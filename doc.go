// Package stoker feeds training loops: it reads records from a dataset, decodes
// and augments images on all cores, and hands over finished batches, in an
// order that is a pure function of a seed.
//
//	loader, err := stoker.Open(ctx, "train/", &stoker.Options{
//		BatchSize: 256,
//		Shuffle:   true,
//		Outputs: []stoker.Output{{
//			Name: "image",
//			Ops:  []stoker.Op{stoker.RandomResizedCrop(224), stoker.RandomHorizontalFlip(0.5)},
//		}},
//	})
//	if err != nil {
//		return err
//	}
//	defer loader.Close()
//	for range 3 { // epochs
//		for {
//			batch, err := loader.Next(ctx)
//			if err == io.EOF {
//				break // end of the epoch; the next call begins the next one
//			}
//			if err != nil {
//				return err
//			}
//			train(batch.Bytes("image"), batch.Ints("label"))
//			batch.Release()
//		}
//	}
//
// The same engine serves Python through the stoker package there. A dataset is
// a folder of images or a pack made by `stoker pack`; see package source.
//
// # Order and state
//
// The order of an epoch depends on (seed, epoch) alone, the augmentation of a
// record on (seed, epoch, record) alone. [Loader.State] is a few numbers; after
// [Loader.Restore], in another process, on other cores or on another number of
// ranks, the next batch is the exact next one, pixels included.
//
// # Memory
//
// Batches lie in a ring outside the Go heap. A [Batch] is valid until Release;
// the loader works ahead as far as free slots allow. Options.Memory bounds ring
// and buffers together.
//
// # Compatibility
//
// The package follows semantic versions. What a seed means, which records come
// in which order and how they are augmented, changes only with a major version.
package stoker
