// Package expansion makes the objects that ExpansionTemplates of Gatekeeper say an object
// will become others of, such as the Pods of a Deployment.
//
// Mutators are not applied to what is generated: [Mutator] tells a caller that it was
// given one, so that it refuses them by name.
package expansion
