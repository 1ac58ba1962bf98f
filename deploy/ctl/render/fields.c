/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/render/fields.h"

#include "config/schema.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 192 };

/* The tables were made from Google's discovery document of the API,
 * aiplatform.googleapis.com version v1. */
const char fields_date[] = "2026-11-06";

#define TEXT(name)                                                                                                     \
	{                                                                                                              \
		name, FIELDS_TEXT, false, NULL                                                                         \
	}
#define TEXT_LIST(name)                                                                                                \
	{                                                                                                              \
		name, FIELDS_TEXT, true, NULL                                                                          \
	}
#define NUMBER(name)                                                                                                   \
	{                                                                                                              \
		name, FIELDS_NUMBER, false, NULL                                                                       \
	}
#define SWITCH(name)                                                                                                   \
	{                                                                                                              \
		name, FIELDS_SWITCH, false, NULL                                                                       \
	}
#define TEXTS(name)                                                                                                    \
	{                                                                                                              \
		name, FIELDS_TEXTS, false, NULL                                                                        \
	}
#define ANY(name)                                                                                                      \
	{                                                                                                              \
		name, FIELDS_ANY, false, NULL                                                                          \
	}
#define PART(name, message)                                                                                            \
	{                                                                                                              \
		name, FIELDS_MESSAGE, false, &(message)                                                                \
	}
#define PARTS(name, message)                                                                                           \
	{                                                                                                              \
		name, FIELDS_MESSAGE, true, &(message)                                                                 \
	}
/* What the service writes into a job. */
#define OUTPUT                                                                                                         \
	ANY("name"), ANY("state"), ANY("createTime"), ANY("startTime"), ANY("endTime"), ANY("updateTime"),             \
	    ANY("error"), ANY("satisfiesPzs"), ANY("satisfiesPzi")

#define MESSAGE(scope, id, called, ...)                                                                                \
	static const struct fields_field id##_table[] = {__VA_ARGS__};                                                 \
	scope const struct fields_message id = {called, id##_table, sizeof id##_table / sizeof id##_table[0]}

MESSAGE(static, variable, "EnvVar", TEXT("name"), TEXT("value"));
MESSAGE(static, container, "ContainerSpec", TEXT("imageUri"), TEXT_LIST("command"), TEXT_LIST("args"),
	PARTS("env", variable));
MESSAGE(static, python, "PythonPackageSpec", TEXT("executorImageUri"), TEXT_LIST("packageUris"), TEXT("pythonModule"),
	TEXT_LIST("args"), PARTS("env", variable));
MESSAGE(static, reservation, "ReservationAffinity", TEXT("reservationAffinityType"), TEXT("key"), TEXT_LIST("values"));
MESSAGE(static, machine, "MachineSpec", TEXT("machineType"), TEXT("acceleratorType"), NUMBER("acceleratorCount"),
	TEXT("gpuPartitionSize"), TEXT("tpuTopology"), PART("reservationAffinity", reservation));
MESSAGE(static, disk, "DiskSpec", TEXT("bootDiskType"), NUMBER("bootDiskSizeGb"));
MESSAGE(static, nfs, "NfsMount", TEXT("server"), TEXT("path"), TEXT("mountPoint"));
MESSAGE(static, lustre, "LustreMount", TEXT("instanceIp"), TEXT("volumeHandle"), TEXT("filesystem"),
	TEXT("mountPoint"));
MESSAGE(, fields_pool, "WorkerPoolSpec", PART("machineSpec", machine), NUMBER("replicaCount"),
	PART("containerSpec", container), PART("pythonPackageSpec", python), PART("diskSpec", disk),
	PARTS("nfsMounts", nfs), PARTS("lustreMounts", lustre));
MESSAGE(static, scheduling, "Scheduling", TEXT("timeout"), SWITCH("restartJobOnWorkerRestart"), TEXT("strategy"),
	SWITCH("disableRetries"), TEXT("maxWaitDuration"));
MESSAGE(static, folder, "GcsDestination", TEXT("outputUriPrefix"));
MESSAGE(static, peering, "DnsPeeringConfig", TEXT("domain"), TEXT("targetProject"), TEXT("targetNetwork"));
MESSAGE(static, psc, "PscInterfaceConfig", TEXT("networkAttachment"), PARTS("dnsPeeringConfigs", peering));
MESSAGE(, fields_spec, "CustomJobSpec", PARTS("workerPoolSpecs", fields_pool), PART("scheduling", scheduling),
	TEXT("serviceAccount"), TEXT("network"), TEXT_LIST("reservedIpRanges"), PART("baseOutputDirectory", folder),
	PART("pscInterfaceConfig", psc), TEXT("tensorboard"), SWITCH("enableWebAccess"),
	SWITCH("enableDashboardAccess"), TEXT("experiment"), TEXT("experimentRun"), TEXT_LIST("models"),
	TEXT("persistentResourceId"), TEXT("protectedArtifactLocationId"));
MESSAGE(static, encryption, "EncryptionSpec", TEXT("kmsKeyName"));
MESSAGE(, fields_job, "CustomJob", TEXT("displayName"), PART("jobSpec", fields_spec), TEXTS("labels"),
	PART("encryptionSpec", encryption), OUTPUT, ANY("webAccessUris"));
MESSAGE(, fields_search, "HyperparameterTuningJob", TEXT("displayName"), {"studySpec", FIELDS_STUDY, false, NULL},
	NUMBER("maxTrialCount"), NUMBER("parallelTrialCount"), NUMBER("maxFailedTrialCount"),
	PART("trialJobSpec", fields_spec), TEXTS("labels"), PART("encryptionSpec", encryption), OUTPUT, ANY("trials"));
MESSAGE(, fields_pipeline, "TrainingPipeline", TEXT("displayName"), ANY("inputDataConfig"),
	TEXT("trainingTaskDefinition"), ANY("trainingTaskInputs"), ANY("trainingTaskMetadata"), ANY("modelToUpload"),
	TEXT("modelId"), TEXT("parentModel"), TEXTS("labels"), PART("encryptionSpec", encryption), OUTPUT);

const struct fields_field *fields_find(const struct fields_message *m, const char *name)
{
	for (size_t i = 0; i < m->n; i++)
		if (tree_is_named(name, m->field[i].name))
			return &m->field[i];
	return NULL;
}

/* Refuses an unknown field that a user has probably misspelled, or that belongs into the
 * job around the spec; else writes a warning. */
static int check_unknown(const struct ydoc *doc, const struct ydoc_node *name, const struct fields_message *m,
			 const char *path, FILE *notes, struct rs_err *e)
{
	if (m == &fields_spec && fields_find(&fields_job, name->text))
		return ydoc_fail(doc, name, path, e, "found a field of CustomJob, expected it beside jobSpec");
	for (size_t i = 0; i < m->n; i++) {
		unsigned distance = schema_distance(name->text, m->field[i].name);

		if (schema_is_near(name->text, m->field[i].name, distance))
			return ydoc_fail(doc, name, path, e, "found an unknown field, expected %s", m->field[i].name);
	}
	fprintf(notes, "warning: %s:%u:%u: %s: %s of the API of %s has no such field; it is kept\n", doc->name,
		name->line, name->column, path, m->name, fields_date);
	return RS_OK;
}

/* Returns whether a node is a whole number, also as Kubeflow writes it: 8.0. */
static bool is_number(const struct ydoc_node *n)
{
	const char *text = n->kind == YDOC_TEXT ? n->text : "";
	size_t digits = strspn(text, "0123456789");

	return digits && (!text[digits] || strcmp(text + digits, ".0") == 0);
}

static bool is_switch(const struct ydoc_node *n)
{
	return n->kind == YDOC_TEXT && !n->quoted && (strcmp(n->text, "true") == 0 || strcmp(n->text, "false") == 0);
}

/* Returns whether a node is a text for all readers of YAML. */
static bool is_text(const struct ydoc_node *n)
{
	char *end;

	if (n->kind != YDOC_TEXT || n->quoted)
		return n->kind == YDOC_TEXT;
	strtod(n->text, &end);
	return !n->nothing && *end && !is_switch(n);
}

static int fail_kind(const struct ydoc *doc, const struct ydoc_node *n, const char *path, const char *expected,
		     struct rs_err *e)
{
	char found[80];

	ydoc_describe(n, found, sizeof found);
	return ydoc_fail(doc, n, path, e, "found %s, expected %s", found, expected);
}

static int check_texts(const struct ydoc *doc, const struct ydoc_node *n, const char *path, struct rs_err *e)
{
	char field[PATH_SIZE];

	if (n->kind != YDOC_MAPPING)
		return fail_kind(doc, n, path, "a mapping", e);
	for (const struct ydoc_node *name = n->child; name; name = name->next->next) {
		snprintf(field, sizeof field, "%.120s.%.60s", path, name->text);
		if (!is_text(name->next))
			return fail_kind(doc, name->next, field, "a text, in quotes if it looks like a number", e);
	}
	return RS_OK;
}

/* Checks a value, or an element of a list of them. */
static int check_value(const struct ydoc *doc, const struct ydoc_node *n, const struct fields_field *f,
		       const char *path, FILE *notes, struct rs_err *e)
{
	if (n->kind == YDOC_TEXT && n->nothing)
		return RS_OK;
	switch (f->kind) {
	case FIELDS_TEXT:
		return is_text(n) ? RS_OK : fail_kind(doc, n, path, "a text, in quotes if it looks like a number", e);
	case FIELDS_NUMBER:
		return is_number(n) ? RS_OK : fail_kind(doc, n, path, "a whole number", e);
	case FIELDS_SWITCH:
		return is_switch(n) ? RS_OK : fail_kind(doc, n, path, "true or false, without quotes", e);
	case FIELDS_MESSAGE:
		return fields_check(doc, n, f->of, path, notes, e);
	case FIELDS_TEXTS:
		return check_texts(doc, n, path, e);
	default:
		return RS_OK;
	}
}

static int check_field(const struct ydoc *doc, const struct ydoc_node *n, const struct fields_field *f,
		       const char *path, FILE *notes, struct rs_err *e)
{
	char item[PATH_SIZE];
	unsigned i = 0;
	int rc = RS_OK;

	if (!f->list || (n->kind == YDOC_TEXT && n->nothing))
		return check_value(doc, n, f, path, notes, e);
	if (n->kind != YDOC_LIST)
		return fail_kind(doc, n, path, "a list", e);
	for (const struct ydoc_node *c = n->child; c && !rc; c = c->next) {
		snprintf(item, sizeof item, "%.160s[%u]", path, i++);
		if (c->kind == YDOC_TEXT && c->nothing && f->kind == FIELDS_TEXT)
			return fail_kind(doc, c, item, "a text", e);
		rc = check_value(doc, c, f, item, notes, e);
	}
	return rc;
}

int fields_check(const struct ydoc *doc, const struct ydoc_node *n, const struct fields_message *m, const char *path,
		 FILE *notes, struct rs_err *e)
{
	unsigned line[32] = {0};
	int rc = RS_OK;

	if (n->kind != YDOC_MAPPING)
		return fail_kind(doc, n, path, "a mapping", e);
	for (const struct ydoc_node *name = n->child; name && !rc; name = name->next->next) {
		const struct fields_field *f = fields_find(m, name->text);
		char field[PATH_SIZE];

		snprintf(field, sizeof field, "%.120s%s%.60s", path, *path ? "." : "", f ? f->name : name->text);
		if (!f) {
			rc = check_unknown(doc, name, m, field, notes, e);
			continue;
		}
		if (line[f - m->field])
			return ydoc_fail(doc, name, field, e, "found a second time, expected once (first in line %u)",
					 line[f - m->field]);
		line[f - m->field] = name->line;
		rc = check_field(doc, name->next, f, field, notes, e);
	}
	return rc;
}

/* Renames all keys of a study. */
static void rename_study(struct ydoc_node *n)
{
	for (struct ydoc_node *c = n->child; c; c = c->next) {
		if (n->kind == YDOC_MAPPING) {
			tree_camel(c->text);
			c = c->next;
		}
		rename_study(c);
	}
}

void fields_rename(struct ydoc_node *n, const struct fields_message *m)
{
	if (n->kind == YDOC_LIST) {
		for (struct ydoc_node *c = n->child; c; c = c->next)
			fields_rename(c, m);
		return;
	}
	if (n->kind != YDOC_MAPPING)
		return;
	for (struct ydoc_node *name = n->child; name; name = name->next->next) {
		const struct fields_field *f = fields_find(m, name->text);

		if (!f)
			continue;
		tree_camel(name->text);
		if (f->kind == FIELDS_MESSAGE)
			fields_rename(name->next, f->of);
		else if (f->kind == FIELDS_STUDY)
			rename_study(name->next);
	}
}
