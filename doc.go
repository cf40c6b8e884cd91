// Package stoker feeds training loops. It reads records from a dataset, decodes and augments images on all cores, and
// delivers finished batches. Their order is a pure function of a seed.
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
// The order of an epoch depends only on (seed, epoch), the augmentation of a record only on (seed, epoch, record).
// [Loader.State] is a few numbers. After [Loader.Restore], the next batch is exactly the next one, pixels included.
// This also holds in another process, on other cores or on another number of ranks.
//
// # Memory
//
// Batches are in a ring outside the Go heap. A [Batch] is valid until Release; the loader works ahead as far as free
// slots allow. Limits.Memory limits ring and buffers together.
//
// # Compatibility
//
// The package follows semantic versions. Only a major version changes the meaning of a seed: the order of records and
// their augmentation.
package stoker
