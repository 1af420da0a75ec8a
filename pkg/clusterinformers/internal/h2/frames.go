package h2

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// What is written is appended to a connection's queue: a Framer would hold a buffer as
// large as the largest frame.

func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, id uint32, length int) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(b, id)
}

func appendSettings(b []byte, settings ...http2.Setting) []byte {
	b = appendFrame(b, http2.FrameSettings, 0, 0, 6*len(settings))
	for _, s := range settings {
		b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
		b = binary.BigEndian.AppendUint32(b, s.Val)
	}
	return b
}

func appendWindowUpdate(b []byte, id, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, http2.FrameWindowUpdate, 0, id, 4), n)
}

func appendReset(b []byte, id uint32, code http2.ErrCode) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, http2.FrameRSTStream, 0, id, 4), uint32(code))
}

func appendGoAway(b []byte, code http2.ErrCode) []byte {
	b = appendFrame(b, http2.FrameGoAway, 0, 0, 8)
	b = binary.BigEndian.AppendUint32(b, 0) // the server opens no streams
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

func appendPing(b []byte, flags http2.Flags, data [8]byte) []byte {
	return append(appendFrame(b, http2.FramePing, flags, 0, 8), data[:]...)
}

// appendHeaders appends a block of headers, split into frames.
func appendHeaders(b []byte, id uint32, block []byte, endStream bool) []byte {
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if endStream {
		flags = http2.FlagHeadersEndStream
	}
	for first := true; first || len(block) > 0; first = false {
		n := min(len(block), maxFrameBytes)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		b = append(appendFrame(b, kind, flags, id, n), block[:n]...)
		block, kind, flags = block[n:], http2.FrameContinuation, 0
	}
	return b
}

// appendData appends a DATA frame.
func appendData(b []byte, id uint32, data []byte, endStream bool) []byte {
	flags := http2.Flags(0)
	if endStream {
		flags = http2.FlagDataEndStream
	}
	return append(appendFrame(b, http2.FrameData, flags, id, len(data)), data...)
}
