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
{{- $tag := .Values.image.tag | default (ternary "cluster" "latest" (eq (include "dunlin.ownEtcd" .) "true")) -}}
{{- $registry := .Values.image.registry -}}
{{- if $registry -}}{{ $registry }}/{{- end -}}
{{ .Values.image.repository }}:{{ $tag }}
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
{{- with .Values.imagePullSecrets }}
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

{{- define "dunlin.container" -}}
image: {{ include "dunlin.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy | quote }}
securityContext: {{ toYaml .Values.securityContext | nindent 2 }}
{{- with .Values.resources }}
resources: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
