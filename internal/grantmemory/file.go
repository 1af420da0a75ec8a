package grantmemory

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// A file is a header and records, all numbers little endian. The header is
//
//	magic      8 bytes
//	complete   8 bytes, a revision: see Memory
//	alive      8 bytes, since the machine was started, in ns; sealed: the process has ended in order
//	CRC32C     4 bytes
//
// and a record, of which the last of its key holds,
//
//	key        32 bytes, a digest
//	grants     32 bytes, a digest
//	from       8 bytes, a revision
//	CRC32C     4 bytes
const (
	magic        = "fdgrants"
	headerBytes  = 8 + 8 + 8 + 4
	recordBytes  = 32 + 32 + 8 + 4
	sealed       = time.Duration(1<<63 - 1)
	temporaryExt = ".tmp"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type header struct {
	complete aggregate.Revision
	alive    time.Duration
}

func (h header) append(b []byte) []byte {
	at := len(b)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.complete))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.alive))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

func appendRecord(b []byte, key Digest, r record) []byte {
	at := len(b)
	b = append(append(b, key[:]...), r.grants[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.from))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

var errUnsound = errors.New("it is not as it was written")

// read returns what is in a file.
func read(path string) (h header, records map[Digest]record, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return h, nil, err
	}
	sum := func(b []byte) bool {
		n := len(b) - 4
		return crc32.Checksum(b[:n], castagnoli) == binary.LittleEndian.Uint32(b[n:])
	}
	if len(text) < headerBytes || string(text[:8]) != magic || !sum(text[:headerBytes]) {
		return h, nil, errUnsound
	}
	h = header{aggregate.Revision(binary.LittleEndian.Uint64(text[8:])), time.Duration(binary.LittleEndian.Uint64(text[16:]))}
	records = map[Digest]record{}
	// What ends in the middle of a record was being written: nothing was sent yet.
	for text = text[headerBytes:]; len(text) >= recordBytes; text = text[recordBytes:] {
		if !sum(text[:recordBytes]) {
			return h, nil, errUnsound
		}
		r := record{grants: Digest(text[32:64]), from: aggregate.Revision(binary.LittleEndian.Uint64(text[64:]))}
		records[Digest(text[:32])] = r
	}
	return h, records, nil
}

// create writes a new file in the place of another.
func create(path string, h header, records map[Digest]record) (*os.File, int64, error) {
	text := h.append(make([]byte, 0, headerBytes+len(records)*recordBytes))
	for key, r := range records {
		text = appendRecord(text, key, r)
	}
	if err := os.Remove(path + temporaryExt); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, 0, err
	}
	f, err := os.OpenFile(path+temporaryExt, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	if _, err = f.Write(text); err == nil {
		err = os.Rename(path+temporaryExt, path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close(), os.Remove(path+temporaryExt))
	}
	return f, int64(len(text)), nil
}
