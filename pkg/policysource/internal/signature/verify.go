package signature

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Errors of signatures and keys.
var (
	ErrUnsigned  = errors.New("unsigned")
	ErrUntrusted = errors.New("signed by a key that is not trusted")
	ErrExpired   = errors.New("signed by a key that is not valid at this time")
	ErrRevoked   = errors.New("signed by a key that is revoked")
	ErrInvalid   = errors.New("signature is invalid")
	ErrKeys      = errors.New("trusted keys cannot be read")
)

// Keys are the trusted keys. With the zero value no signature is required.
type Keys struct {
	// AllowedSigners is an allowed signers file (ssh-keygen(1)). Principals are only
	// shown; supported options are valid-after and valid-before, in UTC, and namespaces.
	AllowedSigners []byte
	// PGP is one or more armored public keyrings.
	PGP []byte
}

// Required reports whether a signature is required.
func (k Keys) Required() bool { return len(k.AllowedSigners) > 0 || len(k.PGP) > 0 }

// Verifier verifies signatures. It is safe for concurrent use.
type Verifier struct {
	ssh []allowedSigner
	pgp keyring
}

// NewVerifier parses keys. Errors wrap ErrKeys.
func NewVerifier(k Keys) (*Verifier, error) {
	v := &Verifier{}
	var err error
	if len(k.AllowedSigners) > 0 {
		if v.ssh, err = parseAllowedSigners(k.AllowedSigners); err != nil {
			return nil, fmt.Errorf("%w: allowed signers: %w", ErrKeys, err)
		}
	}
	if len(k.PGP) > 0 {
		if v.pgp, err = parseKeyring(k.PGP); err != nil {
			return nil, fmt.Errorf("%w: PGP: %w", ErrKeys, err)
		}
	}
	if !k.Required() {
		return nil, fmt.Errorf("%w: there are none", ErrKeys)
	}
	return v, nil
}

// maxSignature is the maximum size of a signature in bytes.
const maxSignature = 64 << 10

// Verify returns who signed a payload: the principals of an SSH key, or a PGP
// identity, with the key's fingerprint. made is the time in the signed object. Errors wrap
// one of this package.
func (v *Verifier) Verify(payload, signature []byte, made, now time.Time) (string, error) {
	trimmed := bytes.TrimSpace(signature)
	switch {
	case len(trimmed) == 0:
		return "", ErrUnsigned
	case len(trimmed) > maxSignature:
		return "", fmt.Errorf("%w: it is larger than %d bytes", ErrInvalid, maxSignature)
	case bytes.HasPrefix(trimmed, []byte(sshBegin)):
		return v.verifySSH(payload, trimmed, made, now)
	case bytes.HasPrefix(trimmed, []byte("-----BEGIN PGP ")):
		return v.verifyPGP(payload, trimmed, now)
	}
	return "", fmt.Errorf("%w: it is neither an SSH nor a PGP signature", ErrInvalid)
}
