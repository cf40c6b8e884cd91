// Package handoff gives batches to a trainer in another process.
//
// The trainer and the engine share one ring of batch slots, an anonymous
// memfd whose descriptor is passed once over a SOCK_SEQPACKET socket. A batch
// is then one small message that names a slot; the slot comes back with
// another one when the trainer has dropped the last view of it. The messages
// and the ring are specified in docs/reference/protocol.md.
//
// One connection is one [Session], and a session owns its stream. Either side
// learns of the other's death by the end of the connection, and nothing has a
// name that could outlive both.
package handoff
