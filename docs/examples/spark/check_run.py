"""Checks a run in your own Spark, prints what was found, and ends with 0 (held), 1 (violated) or 2 (unknown).

spark-submit --master spark://HOST:7077 check_run.py RUN

RUN is a directory that the workers see, or a URI such as s3a://trials/smoke-1.
"""

import sys

from pyspark.sql import SparkSession

from prozess import spark as trial


def main(run: str) -> int:
    spark = SparkSession.builder.appName("check a run").getOrCreate()
    try:
        verdict = trial.check(spark, run)
        print(verdict.verdict, "-", verdict.sentence)
        found = trial.findings(spark, run).where("count > 0")
        found.groupBy("anomaly").sum("count").orderBy("anomaly").show(truncate=False)
        trial.history(spark, run, "sends").groupBy("partition").count().orderBy("partition").show()
    finally:
        spark.stop()
    return {"held": 0, "violated": 1}.get(verdict.verdict, 2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
