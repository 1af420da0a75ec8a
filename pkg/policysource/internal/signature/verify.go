package signature

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// What can be wrong with a signature.
var (
	ErrUnsigned  = errors.New("unsigned")
	ErrUntrusted = errors.New("signed by a key that is not trusted")
	ErrExpired   = errors.New("signed by a key that is not valid at this time")
	ErrRevoked   = errors.New("signed by a key that is revoked")
	ErrInvalid   = errors.New("signature is invalid")
	ErrKeys      = errors.New("trusted keys cannot be read")
)

// Keys are whom to trust. The zero value trusts nobody, and asks for no signature.
type Keys struct {
	// AllowedSigners is a file as ssh-keygen(1) describes it under ALLOWED SIGNERS.
	// Principals are names to show; options may be valid-after, valid-before, in UTC,
	// and namespaces.
	AllowedSigners []byte
	// PGP is one or more armored public keyrings.
	PGP []byte
}

// Required says whether a signature is asked for.
func (k Keys) Required() bool { return len(k.AllowedSigners) > 0 || len(k.PGP) > 0 }

// Verifier holds parsed keys. It is immutable, for any number of goroutines.
type Verifier struct {
	ssh []allowed
	pgp keyring
}

// NewVerifier reads keys; what cannot be read is an error that wraps ErrKeys.
func NewVerifier(k Keys) (*Verifier, error) {
	v := &Verifier{}
	var err error
	if len(k.AllowedSigners) > 0 {
		if v.ssh, err = parseAllowed(k.AllowedSigners); err != nil {
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

// maxSignature bounds a signature, in bytes.
const maxSignature = 64 << 10

// Verify returns who signed a payload: the principals of an SSH key, or a PGP
// identity, with the key's fingerprint. made is when the signed object says it was
// made. Errors wrap one of this package's.
func (v *Verifier) Verify(payload, signature []byte, made, now time.Time) (string, error) {
	trimmed := bytes.TrimSpace(signature)
	switch {
	case len(trimmed) == 0:
		return "", ErrUnsigned
	case len(trimmed) > maxSignature:
		return "", fmt.Errorf("%w: it has more than %d bytes", ErrInvalid, maxSignature)
	case bytes.HasPrefix(trimmed, []byte(sshBegin)):
		return v.verifySSH(payload, trimmed, made, now)
	case bytes.HasPrefix(trimmed, []byte("-----BEGIN PGP ")):
		return v.verifyPGP(payload, trimmed, now)
	}
	return "", fmt.Errorf("%w: it is neither SSH's nor PGP's", ErrInvalid)
}
