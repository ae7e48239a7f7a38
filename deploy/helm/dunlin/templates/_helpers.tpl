{{/* A value as text, whatever YAML took it for: 1000000 is no 1e+06. */}}
{{- define "dunlin.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* The same for an argument of a container, in which Kubernetes replaces $(NAME). */}}
{{- define "dunlin.argument" -}}
{{- include "dunlin.text" . | replace "$(" "$$(" | quote -}}
{{- end -}}

{{/* A map whose values are texts: labels, annotations. */}}
{{- define "dunlin.strings" -}}
{{- $strings := dict -}}
{{- range $key, $value := . }}{{ $strings = set $strings $key (include "dunlin.text" $value) }}{{ end -}}
{{- toYaml $strings -}}
{{- end -}}

{{/* A name of a database as a part of names of Kubernetes. */}}
{{- define "dunlin.part" -}}
{{- . | lower | replace "_" "-" | replace "." "-" -}}
{{- end -}}

{{/* A probe of ours, changed by what the values say; another action takes the place of ours. */}}
{{- define "dunlin.probe" -}}
{{- $given := index . 0 | default dict -}}
{{- $own := index . 1 | fromYaml -}}
{{- range $action := list "exec" "grpc" "httpGet" "tcpSocket" -}}
{{- if hasKey $given $action }}{{ $own = omit $own "httpGet" }}{{ end -}}
{{- end -}}
{{- mergeOverwrite $own $given | toYaml -}}
{{- end -}}

{{- define "dunlin.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Short: the names of services and pods are made of it. */}}
{{- define "dunlin.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "dunlin.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "dunlin.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "dunlin.selector" -}}
app.kubernetes.io/name: {{ include "dunlin.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "dunlin.labels" -}}
{{ include "dunlin.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ include "dunlin.strings" . }}
{{- end }}
{{- end -}}

{{- define "dunlin.ownEtcd" -}}
{{- if and (eq .Values.mode "cluster") (not .Values.etcd.endpoints) -}}true{{- end -}}
{{- end -}}

{{- define "dunlin.image" -}}
{{- $ending := ternary "-cluster" "" (eq (include "dunlin.ownEtcd" .) "true") -}}
{{- $tag := .Values.image.tag | default (printf "%s%s" .Chart.AppVersion $ending) -}}
{{- $registry := (.Values.global).imageRegistry | default .Values.image.registry -}}
{{- if $registry -}}{{ $registry }}/{{- end -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ $tag }}{{ end }}
{{- end -}}

{{- define "dunlin.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "dunlin.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "dunlin.nodes" -}}{{ include "dunlin.fullname" . }}-nodes{{- end -}}
{{- define "dunlin.headless" -}}{{ include "dunlin.fullname" . }}-headless{{- end -}}
{{- define "dunlin.secret" -}}{{ default (include "dunlin.fullname" .) .Values.existingSecret }}{{- end -}}
{{/* Where jobs reach a node. */}}
{{- define "dunlin.node" -}}{{ ternary "https://" "" .Values.nodes.tls.enabled }}{{ include "dunlin.fullname" . }}:8380{{- end -}}

{{/* How nodes' certificates are known: by the authority of the secret's token, or of a certificate of the user's. */}}
{{- define "dunlin.nodesTls" -}}
{{- if .Values.nodes.tls.enabled -}}{{ ternary "token" "own" (empty .Values.nodes.tls.existingSecret) }}{{- end -}}
{{- end -}}

{{/* Where nodes have their token from by the user's arguments or environment, and whether it is the secret's all the same. Nothing: the
chart gives it to them. An argument counts before the variable; nodes with an etcd of their own have always had the argument. */}}
{{- define "dunlin.ownToken" -}}
{{- $file := regexFind "(^| )--token-file[= ][^ ]+" (join " " .Values.nodes.extraArgs) | trim -}}
{{- if $file -}}
{{- dict "from" (printf "nodes.extraArgs: %s" $file) "isSecrets" (regexMatch "[= ]/etc/dunlin/secret/token$" $file) | toYaml -}}
{{- else if ne (include "dunlin.ownEtcd" .) "true" -}}
{{- $secret := include "dunlin.secret" . -}}
{{- $own := dict -}}
{{- range .Values.extraEnv -}}
{{- if and (eq .name "DUNLIN_JOIN_TOKEN") (or .value .valueFrom) -}}
{{- $key := .valueFrom | default dict | dig "secretKeyRef" dict -}}
{{- $own = dict "from" "extraEnv: DUNLIN_JOIN_TOKEN" "isSecrets" (and (eq (toString $key.name) $secret) (eq (toString $key.key) "token")) -}}
{{- end -}}
{{- end -}}
{{- if $own }}{{ toYaml $own }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The arguments of `dunlin cluster` in a job that name the node and what its certificate must come from. */}}
{{- define "dunlin.nodeArguments" -}}
- {{ printf "--node=%s" (include "dunlin.node" .) | quote }}
{{- if eq (include "dunlin.nodesTls" .) "token" }}
- --token-file=/etc/dunlin/nodes-tls/token
{{- else if eq (include "dunlin.nodesTls" .) "own" }}
- --cacert=/etc/dunlin/nodes-tls/ca.crt
{{- end }}
{{- end -}}

{{- define "dunlin.nodesTlsMount" -}}
- name: nodes-tls
  mountPath: /etc/dunlin/nodes-tls
  readOnly: true
{{- end -}}

{{/* What a job checks certificates with, and no more. */}}
{{- define "dunlin.nodesAuthorityVolume" -}}
{{- $isToken := eq (include "dunlin.nodesTls" .) "token" -}}
{{- $key := ternary "token" "ca.crt" $isToken -}}
- name: nodes-tls
  secret:
    secretName: {{ ternary (include "dunlin.secret" .) .Values.nodes.tls.existingSecret $isToken | quote }}
    defaultMode: 0440
    items:
      - {key: {{ $key }}, path: {{ $key }}}
{{- end -}}

{{- define "dunlin.tlsSecret" -}}{{ default (printf "%s-tls" (include "dunlin.fullname" .)) .Values.tls.existingSecret }}{{- end -}}

{{/* Where Prometheus finds the user and the password of a scrape; nothing if the server has no password. */}}
{{- define "dunlin.monitor" -}}
{{- $auth := .Values.auth -}}
{{- $name := include "dunlin.fullname" . -}}
{{- $user := include "dunlin.text" .Values.metrics.serviceMonitor.user -}}
{{- if eq .Values.mode "cluster" }}
userSecret: {{ include "dunlin.secret" . | quote }}
passwordSecret: {{ include "dunlin.secret" . | quote }}
passwordKey: admin-password
{{- else if and $auth.enabled $auth.aclUsers }}
{{- if not (hasKey $auth.aclUsers $user) }}
{{- fail (printf "metrics.serviceMonitor.user: %s is not in auth.aclUsers" $user) }}
{{- end }}
userSecret: {{ $name }}-metrics
passwordSecret: {{ tpl (default $name $auth.usersExistingSecret) . | quote }}
passwordKey: {{ include "dunlin.text" ((get $auth.aclUsers $user).passwordKey | default $user) | quote }}
{{- else if $auth.enabled }}
userSecret: {{ $name }}-metrics
passwordSecret: {{ $auth.existingSecret | default $name | quote }}
passwordKey: {{ include "dunlin.text" $auth.existingSecretPasswordKey | quote }}
{{- end }}
{{- end -}}

{{/* NAME=HOST of the nodes with a server of etcd: one, or three. */}}
{{- define "dunlin.members" -}}
{{- $root := . -}}
{{- $members := list -}}
{{- range $number := until (ternary 3 1 (ge (int .Values.nodes.count) 3)) -}}
{{- $pod := printf "%s-%d" (include "dunlin.fullname" $root) $number -}}
{{- $members = append $members (printf "%s=%s.%s.%s.svc.%s" $pod $pod (include "dunlin.nodes" $root) $root.Release.Namespace $root.Values.clusterDomain) -}}
{{- end -}}
{{- join "," $members -}}
{{- end -}}

{{/* What all pods have. */}}
{{- define "dunlin.pod" -}}
serviceAccountName: {{ include "dunlin.serviceAccount" . | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with concat .Values.imagePullSecrets (include "dunlin.globalPullSecrets" . | fromYamlArray) }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext: {{ toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ include "dunlin.strings" . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "dunlin.spread" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- with $root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml . | nindent 4 | trim }}
    {{- if not .labelSelector }}
    labelSelector:
      matchLabels:
        {{- include "dunlin.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $component }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* global.imagePullSecrets, whose elements are names or as imagePullSecrets'. */}}
{{- define "dunlin.globalPullSecrets" -}}
{{- $secrets := list -}}
{{- range (.Values.global).imagePullSecrets }}{{ $secrets = append $secrets (kindIs "map" . | ternary . (dict "name" .)) }}{{ end -}}
{{- toYaml $secrets -}}
{{- end -}}

{{/* Containers of the user before ours. */}}
{{- define "dunlin.initContainers" -}}
{{- with .Values.extraInitContainers }}
initContainers: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What the chart's own secret holds. Random values are those of the secret that is there; else they are made once, also if
this is asked for twice. */}}
{{- define "dunlin.secretData" -}}
{{- if not (hasKey .Release "dunlinSecret") -}}
{{- $_ := set .Release "dunlinSecret" (include "dunlin.newSecretData" .) -}}
{{- end -}}
{{- .Release.dunlinSecret -}}
{{- end -}}

{{- define "dunlin.newSecretData" -}}
{{- $name := ternary (include "dunlin.secret" .) (include "dunlin.fullname" .) (eq .Values.mode "cluster") -}}
{{- $known := (lookup "v1" "Secret" .Release.Namespace $name).data | default dict -}}
{{- $data := dict -}}
{{- $auth := .Values.auth -}}
{{- if eq .Values.mode "cluster" -}}
{{- $_ := set $data "token" ($known.token | default (randAlphaNum 48 | b64enc)) -}}
{{- $_ := set $data "username" ("admin" | b64enc) -}}
{{- $_ := set $data "admin-password" (index $known "admin-password" | default (randAlphaNum 32 | b64enc)) -}}
{{- else if $auth.aclUsers -}}
{{- range $user, $options := $auth.aclUsers -}}
{{- $password := required (printf "auth.aclUsers.%s.password, or auth.usersExistingSecret" $user) $options.password -}}
{{- $_ := set $data (include "dunlin.text" ($options.passwordKey | default $user)) (include "dunlin.text" $password | b64enc) -}}
{{- end -}}
{{- else -}}
{{- $key := include "dunlin.text" $auth.existingSecretPasswordKey -}}
{{- $given := include "dunlin.text" $auth.password | b64enc -}}
{{- $_ := set $data $key ($given | default (index $known $key) | default (randAlphaNum 32 | b64enc)) -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}

{{/* Changes when a secret that pods read at their start changes: names of the user's secrets, root. Pods can be read by many, so
of passwords that may be short there is a slow hash, and of the user's secrets the revision. */}}
{{- define "dunlin.secretState" -}}
{{- $root := index . 1 -}}
{{- $parts := list -}}
{{- range $secret := index . 0 | uniq -}}
{{- $found := lookup "v1" "Secret" $root.Release.Namespace $secret -}}
{{- if $found }}{{ $parts = append $parts (printf "%s:%s" $secret $found.metadata.resourceVersion) }}{{ end -}}
{{- end -}}
{{- $auth := $root.Values.auth -}}
{{- if eq $root.Values.mode "cluster" -}}
{{- if not $root.Values.existingSecret }}{{ $parts = append $parts (include "dunlin.secretData" $root) }}{{ end -}}
{{- else if and $auth.enabled (not $auth.existingSecret) (not $auth.usersExistingSecret) -}}
{{- $parts = append $parts (derivePassword 1 "maximum" (include "dunlin.secretData" $root) $root.Release.Name $root.Release.Namespace) -}}
{{- end -}}
{{- join "," $parts | sha256sum -}}
{{- end -}}

{{/* The label `job` that the Prometheus operator gives: the name of the service. */}}
{{- define "dunlin.job" -}}
{{ include "dunlin.fullname" . }}{{ if eq .Values.mode "server" }}-metrics{{ end }}
{{- end -}}

{{/* An expression of the alerts, about the series of this release alone: expression, root. */}}
{{- define "dunlin.expression" -}}
{{- $root := index . 1 -}}
{{- $selector := printf "{job=%q,namespace=%q}" (include "dunlin.job" $root) $root.Release.Namespace -}}
{{- $plain := regexReplaceAll "\\bup\\{[^}]*\\}" (index . 0) "up" -}}
{{- regexReplaceAll "\\b((?:redis|dunlin)_[a-z0-9_]+|up)\\b" $plain (printf "${1}%s" $selector) | replace "}{" "," -}}
{{- end -}}

{{- define "dunlin.container" -}}
image: {{ include "dunlin.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy | quote }}
securityContext: {{ toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{- define "dunlin.resources" -}}
{{- with .Values.resources }}
resources: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
