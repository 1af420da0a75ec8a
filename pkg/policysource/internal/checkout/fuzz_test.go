package checkout

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// A pack of a commit, its tree and its files, one of them a delta, as git 2.39 writes it.
const seedPack = "" +
	"5041434b00000002000000059407789c7dca3b0a80300c00d0bda7c8ee12dba61f10f12a691ad1a114a482c7d713f8e6372e55d0bd4890e48a90cd68" +
	"452a31b9e258438e98bc68f0ded760f81e47bf8061e1adac30c74c96724c08137e8cf4d6ce31f4a798c7bc98a91ef2a606789c3334303033315148d4" +
	"2b4a4dcf67d09a7cf67dc8545701698e148e9befcaea6ff1301d3284a84882a8b86cd9ae12b94374ebb3b7b75f4c33ab776166093a0155910c5191b6" +
	"d64da74fda645ec0f9388dc529518641870fa7000040c6259c3a789c2b484cce4e4c4f5548e4020014e10358bc8301789c8dd53b0ac2501046e13eab" +
	"187003ce2b3ec0c5441d2c4412f41671f782f69edb9fea63f867992ef7e956320dab1c4fa2b291d7fc2869b53669b39c4b9eb5d4d4eafa2b0c0bc722" +
	"b0482c462c7658ecb13860a15b4e58559955d955195659569956d956195759d758d73a6e96758d758d758d758d758d758d758d759d759d75bd631258" +
	"d759d759d759d759d759d759375837583758373a169775837583758375837583759375937593759375b3e3a1b16eb26eb26eb26eb2eef857f7fd5def" +
	"e10326d0937767804a789cdb23b05560832907000bd6027f34fb3dac8cb14a09347a32ec8e33a552e447e123"

// FuzzUnpack shows that whatever a remote sends as a pack is read or refused, and
// that what is read can be walked.
func FuzzUnpack(f *testing.F) {
	seed, err := hex.DecodeString(seedPack)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed[:len(seed)-sha1.Size])
	f.Fuzz(func(t *testing.T, data []byte) {
		limits, err := Limits{Unpacked: 1 << 20, Objects: 100}.WithDefaults()
		if err != nil {
			t.Fatal(err)
		}
		sum := sha1.Sum(data) // as it should be, so that more than sums are tested
		objects, err := unpack(append(data[:len(data):len(data)], sum[:]...), limits)
		var known *Error
		if err != nil {
			if !errors.As(err, &known) {
				t.Errorf("an error of an unknown type: %v", err)
			}
			return
		}
		for _, kind := range []plumbing.ObjectType{plumbing.TreeObject, plumbing.CommitObject} {
			iter, err := objects.IterEncodedObjects(kind)
			if err != nil {
				t.Fatal(err)
			}
			_ = iter.ForEach(func(o plumbing.EncodedObject) error {
				var err error
				if kind == plumbing.TreeObject {
					w := treeReader{objects: objects, limits: limits}
					_, err = w.read(t.Context(), o.Hash(), ".")
				} else {
					_, err = new(Result).resolve(objects, o.Hash())
				}
				if err != nil && !errors.As(err, &known) {
					t.Errorf("an error of an unknown type: %v", err)
				}
				return nil
			})
		}
	})
}
