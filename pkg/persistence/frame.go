package persistence

// keyInfo is what keys of files are derived for.
const keyInfo = "federator persistence v1"

// Types of frames.
const (
	typePart    byte = 'p' // of a batch that goes on in the next frame
	typeBatch   byte = 'B' // the rest of a batch
	typeMember  byte = 'M'
	typeScope   byte = 'S'
	typeObjects byte = 'O'
	typeTail    byte = 'T'
	typeEnd     byte = 'E' // of a segment: without it, there is none
	typeVoid    byte = 'V' // of a stream: the scope that was begun does not come
)

// partBytes is the size from which on a batch is written in several frames.
const partBytes = 1 << 20
