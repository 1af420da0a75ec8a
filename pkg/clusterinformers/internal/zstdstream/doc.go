// Package zstdstream reads the bodies of responses that are compressed with zstd (RFC 8878) without waiting for them:
// a [Stream] is a stream.Stream over one.
//
// What is decoded is always a whole block, once all of it has come: what has come of the next is kept. A watch that its
// agent has nothing to say of is between two frames, and then has no decoder: it is some two hundred bytes.
//
// # What a server may do
//
// Servers may be hostile. A frame may ask for a window of [MaxWindow], which is several times what agents use, so that
// they may come to use more. A decoder and what it holds are charged for while a frame lasts, whatever little has come
// of it. Decoded bytes are bounded by who reads them, as plain ones are; and since few bytes may become very many, a
// stream gives its reader's turn back after some. Dictionaries and skippable frames are refused. What is no such body is
// [ErrMalformed].
package zstdstream
