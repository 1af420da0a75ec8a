// Package frames has files of checksummed frames, which are encrypted where there is a key. What
// keeps something on disk builds upon it.
//
// A file is a sequence of frames. The first is its header, in clear; the others are sealed
// where there is a key. A frame is
//
//	length of the payload   4 bytes, little endian as all numbers
//	revision                8 bytes
//	type                    1 byte
//	CRC32C of these 13      4 bytes
//	CRC32C of the payload   4 bytes
//	payload
//
// The header of a frame has a checksum of its own, so that its length is believed only then. What is
// not as it was written is ErrDoubt, and what ends in the middle of a frame a TornError: readers end
// there, and never repair. Each file has a key of its own, derived from its salt, and each frame is
// bound to the file's header and to its offset, so that it is none elsewhere.
//
// Nothing here is safe for concurrent use, but Sealer, Decode and ReadAt, which hold no state.
package frames
