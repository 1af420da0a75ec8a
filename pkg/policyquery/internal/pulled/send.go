package pulled

import (
	"context"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// Sender sends what a query reads of members, as far as its caller may read it.
type Sender struct {
	Snapshot *aggregate.Snapshot
	Reads    *policy.QueryReads
	Reader   policy.Reader
	Failed   func() error // why it is not known what the caller may read; nil: it is
	To       Writer

	projector *policy.QueryProjector
}

// Send sends what there is of some members, which the caller may see.
func (s *Sender) Send(ctx context.Context, members []string) error {
	s.projector = s.Reads.Projector()
	for _, name := range members {
		m, ok := s.Snapshot.Member(name)
		if !ok {
			continue
		}
		kinds, err := s.begin(m)
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			if err := s.objects(ctx, name, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin sends what is known of a member and of its scopes, and returns the kinds whose objects are read.
func (s *Sender) begin(m aggregate.Member) (kinds []aggregate.Kind, err error) {
	var scopes []Scope
	for info := range s.Snapshot.Scopes(m.Name) {
		objects, state := s.Reads.Scope(m.Name, info.Kind)
		if !state || !s.Reader.MayReadScope(m.Name, info.Kind) {
			continue
		}
		scopes = append(scopes, Scope{Kind: info.Kind, Version: info.Version, Resource: info.Resource, Status: info.Status})
		if objects {
			kinds = append(kinds, info.Kind)
		}
	}
	if err := s.Failed(); err != nil {
		return nil, err
	}
	return kinds, s.To.Member(m, scopes)
}

// objects sends the objects of a scope that are read.
func (s *Sender) objects(ctx context.Context, member string, kind aggregate.Kind) error {
	if refs, named := s.Reads.Points(member, kind); named {
		for _, ref := range refs {
			if o, ok := s.Snapshot.Get(ref); ok {
				if err := s.object(ctx, o); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for o := range s.Snapshot.Objects(member, kind) {
		if !s.Reads.Object(o.Ref()) {
			continue
		}
		if err := s.object(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// object sends an object that may be read.
func (s *Sender) object(ctx context.Context, o aggregate.Object) error {
	if !s.Reader.MayReadObjects(o.Member(), o.Ref().Kind, o.Namespace()) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	body, err := s.projector.Project(o)
	if err != nil {
		return err
	}
	return s.To.Object(o, body)
}
