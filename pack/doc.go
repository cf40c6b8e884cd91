// Package pack writes, reads and checks packs: datasets in a few large files
// that every tool which knows Apache Arrow can open.
//
// A pack is a folder with shards (ordinary Arrow IPC files) and manifest.json. The manifest lists the chunks of
// records with their locations and checksums, the class names, and the data for the loader's planning.
// docs/reference/pack-format.md is the specification.
//
//	summary, err := pack.Write(ctx, "photos/", "photos.pack", nil)
//	...
//	r, err := pack.Open(ctx, "photos.pack", nil)
//	...
//	defer r.Close()
//	rec, err := r.Record(17)
//
// The manifest is written last. Until then the folder is unfinished, and every reader refuses it with a message about
// how to finish it. Write with the same arguments resumes an interrupted run. The result is identical, bit for bit,
// to that of an uninterrupted run.
package pack
